/* SPDX-License-Identifier: Apache-2.0 */
/* isobox-runner: starts and supervises the sandboxes. See docs/architecture.md. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/config.h"
#include "lib/harden.h"
#include "lib/log.h"
#include "lib/token.h"
#include "runner/egress/choose.h"
#include "runner/egress/egress.h"
#include "runner/server.h"

/* The connections of server.c and some descriptors for each run. */
#define NOFILE_MAX 16384u

static const char usage_line[] =
    "usage: isobox-runner [--config FILE] [--check-config | --check-egress]\n"
    "       isobox-runner --help | --version\n";

static const char help_text[] =
    "\n"
    "Starts and supervises gVisor sandboxes for isobox.fcgi. Run it as an\n"
    "unprivileged user inside a delegated, memory-capped cgroup subtree.\n"
    "\n"
    "  --config FILE    configuration (default: $ISOBOX_CONFIG, else\n"
    "                   " ISOBOX_SYSCONFDIR
    "/isobox/isobox.yaml if it is there)\n"
    "  --check-config   print the configuration in force and exit\n"
    "  --check-egress   try whether runs get their filtered network, and exit\n"
    "\n"
    "Signals: TERM and INT drain and end (a second one ends the runs, too);\n"
    "HUP reads the registry again. See isobox-runner(8).\n";

struct options {
	const char *config;
	bool check;
	bool check_egress;
};

static struct options parse_options(int argc, char **argv)
{
	static const struct option longs[] = {
	    {"config", required_argument, NULL, 'c'},
	    {"check-config", no_argument, NULL, 'C'},
	    {"check-egress", no_argument, NULL, 'E'},
	    {"help", no_argument, NULL, 'h'},
	    {"version", no_argument, NULL, 'v'},
	    {NULL, 0, NULL, 0},
	};
	struct options o = {0};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			o.config = optarg;
			break;
		case 'C':
			o.check = true;
			break;
		case 'E':
			o.check_egress = true;
			break;
		case 'h':
			(void)printf("%s%s", usage_line, help_text);
			exit(0);
		case 'v':
			(void)printf("isobox-runner %s\n", ISOBOX_VERSION);
			exit(0);
		default:
			(void)fputs(usage_line, stderr);
			exit(2);
		}
	}
	if (optind < argc) {
		(void)fputs(usage_line, stderr);
		exit(2);
	}
	return o;
}

/* root would run every sandbox as root, and its files would be root's. */
static void refuse_root(void)
{
	if (geteuid() == 0 || getuid() == 0)
		die("run me as an unprivileged user, not as root");
}

static void check_programs(const struct config *c)
{
	if (access(c->runsc, X_OK) != 0)
		die("runsc: %s: %s", c->runsc, strerror(errno));
	if (access(c->init_path, X_OK) != 0)
		die("init_path: %s: %s", c->init_path, strerror(errno));
}

/* 0: filtered and verified; 1: no, and why. */
static int check_egress(
    struct egress_policy *policy, const struct config *config)
{
	uint64_t us = 0;
	struct err e;

	if (harden_process(NOFILE_MAX, &e) < 0)
		die("%s", e.msg);
	egress_choose(policy, config);
	if (egress_try(policy, &us, &e) < 0)
		die("egress: %s", e.msg);
	(void)printf("egress: filtered and verified in %.1f ms, by %s\n",
	    (double)us / 1000, policy->choice);
	return 0;
}

int main(int argc, char **argv)
{
	const struct options o = parse_options(argc, argv);
	struct egress_policy *policy = NULL;
	struct config *config = NULL;
	struct err e;
	int level;

	log_init("isobox-runner", LOG_LVL_INFO);
	if (token_init(&e) < 0 ||
	    config_load_without_keys(o.config, &config, &e) < 0)
		die("%s", e.msg);
	if (egress_policy_new(config, &policy, &e) < 0)
		die("%s", e.msg);
	if (o.check) {
		config_print(config);
		egress_policy_free(policy);
		config_free(config);
		return 0;
	}
	level = log_level_parse(config->log_level);
	log_init(
	    "isobox-runner", level < 0 ? LOG_LVL_INFO : (enum log_level)level);
	refuse_root();
	if (o.check_egress)
		return check_egress(policy, config);
	check_programs(config);
	if (harden_process(NOFILE_MAX, &e) < 0)
		die("%s", e.msg);
	if (config->allow_network) {
		egress_choose(policy, config);
		log_info("egress: by %s", policy->choice);
	}
	if (server_run(config, policy, &e) < 0)
		die("%s", e.msg);
	egress_policy_free(policy);
	config_free(config);
	return 0;
}
