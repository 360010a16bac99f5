/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isobox.fcgi: the web side of isobox. It parses what strangers send, and holds
 * no right over sandboxes: it asks isobox-runner, by a unix socket, to run code.
 *
 * One program for three ways in, chosen by how it was started:
 *	--listen PATH		FastCGI on a unix socket of its own
 *	descriptor 0 listens	FastCGI on the socket inherited there
 *	GATEWAY_INTERFACE set	CGI: one request, then the end
 *
 * FastCGI: one event loop (server.c) owns all connections and gathers requests
 * from them (record.c, conn.c); threads made at the start (pool.c) serve whole
 * requests, one each (exchange.c). From there on both ways are the same:
 * request.c says what is asked for, router.c who answers, h_*.c answer by
 * response.c, and run.c follows a run from rclient.c to sse.c or result.c.
 *
 * Everything that is read from files is read before main's harden() or at
 * SIGHUP; no request opens a file but the store's (lib/store.h), resolves a name
 * or starts a process.
 */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fcgi/app.h"
#include "fcgi/cgi.h"
#include "fcgi/conn.h"
#include "fcgi/server.h"
#include "fcgi/sweep.h"
#include "lib/harden.h"
#include "lib/log.h"
#include "lib/token.h"

#define PROGRAM "isobox.fcgi"

/* Connections, two ends of a pipe a thread, a connection to the runner each. */
#define NOFILE_MAX 8192u

#define EXIT_USAGE 2

/* LeakSanitizer reads /proc; valgrind knows no seccomp(2). */
#ifdef ISOBOX_SANITIZED
#define SANITIZED true
#else
#define SANITIZED false
#endif

struct options {
	const char *config_path;
	const char *listen_path;
	mode_t socket_mode;
	bool check_config;
};

static void usage(FILE *f)
{
	(void)fprintf(f, "usage: " PROGRAM " [--config FILE] [--listen PATH "
			 "[--socket-mode MODE]]\n"
			 "       " PROGRAM " [--config FILE] --check-config\n"
			 "       " PROGRAM " --help | --version\n");
}

static void help(void)
{
	usage(stdout);
	(void)printf(
	    "\n"
	    "Serves isobox's HTTP API to a web server.\n"
	    "  --listen PATH       FastCGI on a unix socket made at "
	    "PATH\n"
	    "  --socket-mode MODE  its permissions, octal (0660)\n"
	    "  --config FILE       read this configuration\n"
	    "  --check-config      show the configuration in force, or "
	    "what is wrong\n"
	    "Without --listen, descriptor 0 is the FastCGI socket; "
	    "with GATEWAY_INTERFACE in\n"
	    "the environment this is a CGI program. See " PROGRAM "(8).\n");
}

static int parse_mode(const char *text, mode_t *ret)
{
	char *end;
	unsigned long mode = strtoul(text, &end, 8);

	if (text[0] < '0' || text[0] > '7' || *end != '\0' || mode > 0777)
		return -EINVAL;
	*ret = (mode_t)mode;
	return 0;
}

/* Exits by itself when nothing is left to do. */
static void parse_options(int argc, char **argv, struct options *o)
{
	enum {
		OPT_CONFIG = 256,
		OPT_LISTEN,
		OPT_MODE,
		OPT_CHECK,
		OPT_HELP,
		OPT_VERSION
	};
	static const struct option longs[] = {
	    {"config", required_argument, NULL, OPT_CONFIG},
	    {"listen", required_argument, NULL, OPT_LISTEN},
	    {"socket-mode", required_argument, NULL, OPT_MODE},
	    {"check-config", no_argument, NULL, OPT_CHECK},
	    {"help", no_argument, NULL, OPT_HELP},
	    {"version", no_argument, NULL, OPT_VERSION},
	    {NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case OPT_CONFIG:
			o->config_path = optarg;
			continue;
		case OPT_LISTEN:
			o->listen_path = optarg;
			continue;
		case OPT_MODE:
			if (parse_mode(optarg, &o->socket_mode) == 0)
				continue;
			(void)fprintf(stderr,
			    PROGRAM ": --socket-mode: octal, 0 to 0777\n");
			break;
		case OPT_CHECK:
			o->check_config = true;
			continue;
		case OPT_HELP:
			help();
			exit(EXIT_SUCCESS);
		case OPT_VERSION:
			(void)printf(PROGRAM " " ISOBOX_VERSION "\n");
			exit(EXIT_SUCCESS);
		default:
			break;
		}
		usage(stderr);
		exit(EXIT_USAGE);
	}
	if (optind == argc)
		return;
	(void)fprintf(stderr, PROGRAM ": %s: what is that?\n", argv[optind]);
	usage(stderr);
	exit(EXIT_USAGE);
}

/* The folder of a file: a file that is replaced by rename(2) is another one to
 * Landlock, what is below a folder is not. */
struct folder {
	char path[PATH_MAX];
};

static const char *folder_of(const char *file, struct folder *f)
{
	(void)snprintf(f->path, sizeof(f->path), "%s", file);
	return dirname(f->path);
}

/* As config_load() finds it. */
static const char *config_file(const struct app *app)
{
	const char *env = getenv("ISOBOX_CONFIG");

	if (app->config_path != NULL)
		return app->config_path;
	return env != NULL ? env : ISOBOX_SYSCONFDIR "/isobox/isobox.yaml";
}

/* Every place that is used from here on. Connecting to the runner's socket is
 * no matter of Landlock. */
static int harden_paths(
    const struct app *app, const struct options *o, struct err *e)
{
	const struct config *c = app->config;
	struct folder folders[4];
	struct harden_path paths[8];
	size_t n = 0;

	paths[n++] = (struct harden_path){c->registry_dir, false};
	paths[n++] = (struct harden_path){c->images_dir, false};
	paths[n++] = (struct harden_path){c->data_dir, false};
	paths[n++] = (struct harden_path){c->state_dir, true};
	if (c->api_keys_file != NULL)
		paths[n++] = (struct harden_path){
		    folder_of(c->api_keys_file, &folders[0]), false};
	paths[n++] = (struct harden_path){
	    folder_of(config_file(app), &folders[1]), false};
	if (o->listen_path != NULL)
		paths[n++] = (struct harden_path){
		    folder_of(o->listen_path, &folders[2]), true};
	if (c->access_log[0] == '/')
		paths[n++] = (struct harden_path){
		    folder_of(c->access_log, &folders[3]), true};
	return harden_files(paths, n, e);
}

/* Gives up what is not needed any more, in this order. Before the first thread:
 * Landlock and seccomp hold for one thread and those that it starts. */
static int harden(const struct app *app, const struct options *o, struct err *e)
{
	int r;

	if ((r = harden_process(NOFILE_MAX, e)) < 0)
		return r;
	if (SANITIZED)
		return 0;
	r = harden_paths(app, o, e);
	if (r < 0)
		return r;
	return harden_syscalls_fcgi(e);
}

static void set_log_level(const struct app *app)
{
	int level = log_level_parse(app->config->log_level);

	if (level >= 0)
		log_init(PROGRAM, (enum log_level)level);
}

/* Threads share few heaps; what a large request takes goes back when it ends. */
static void tune_malloc(void)
{
	(void)mallopt(M_ARENA_MAX, 2);
	(void)mallopt(M_TRIM_THRESHOLD, 256 * 1024);
	(void)mallopt(M_MMAP_THRESHOLD, 64 * 1024);
}

static int run_server(struct app *app, const struct options *o)
{
	struct listener listener;
	struct sweeper *sweeper = NULL;
	sigset_t signals;
	struct err e;
	int r;

	tune_malloc();
	if (server_block_signals(&signals, &e) < 0 || conn_setup(&e) < 0)
		die("%s", e.msg);
	r = o->listen_path != NULL
		? listen_at(o->listen_path, o->socket_mode, &listener, &e)
		: listen_inherit(&listener, &e);
	if (r < 0)
		die("%s", e.msg);
	if (harden(app, o, &e) < 0) {
		listen_close(&listener);
		die("%s", e.msg);
	}
	if (geteuid() == 0)
		log_warn("running as root, and needs no privilege at all: "
			 "give it a user of its own");
	app_log_missing(app);
	log_info("version " ISOBOX_VERSION ", listening at %s",
	    o->listen_path != NULL ? o->listen_path : "descriptor 0");
	if (sweeper_start(app, &sweeper, &e) < 0)
		die("%s", e.msg);
	r = server_run(app, &listener, &signals, &e);
	if (r < 0)
		die("%s", e.msg);
	if (r > 0)
		_exit(EXIT_FAILURE); /* threads are still at work */
	sweeper_stop(sweeper);
	app_done(app);
	return EXIT_SUCCESS;
}

/*
 * A CGI program's arguments come from the query of whoever asks (RFC 3875,
 * section 4.4): they are not looked at.
 */
static int run_cgi(void)
{
	const struct options none = {0};
	const atomic_bool never = false;
	struct app app;
	struct err e;

	if (app_init(&app, NULL, &e) < 0) {
		log_error("%s", e.msg);
		cgi_fail();
		return EXIT_FAILURE;
	}
	set_log_level(&app);
	if (harden(&app, &none, &e) < 0) {
		log_error("%s", e.msg);
		cgi_fail();
	} else {
		cgi_serve(&app);
		cgi_let_go();
		sweep_if_due(&app, &never);
	}
	app_done(&app);
	return EXIT_SUCCESS;
}

/* Reads what the service would read, and makes no file: whoever asks may be
 * another user than the service. */
static int check_config(const struct options *o)
{
	struct config *config;
	struct catalog *catalog;
	struct err e;

	if (token_init(&e) < 0 || config_load(o->config_path, &config, &e) < 0)
		die("%s", e.msg);
	if (catalog_load(config, &catalog, &e) < 0) {
		config_free(config);
		die("%s", e.msg);
	}
	config_print(config);
	registry_log_missing(catalog->registry);
	shared_put(&catalog->shared);
	config_free(config);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct options o = {.socket_mode = 0660};
	bool inherited = listen_is_inherited();
	struct app app;
	struct err e;

	log_init(PROGRAM, LOG_LVL_INFO);
	if (!inherited && getenv("GATEWAY_INTERFACE") != NULL)
		return run_cgi();
	parse_options(argc, argv, &o);
	if (o.listen_path == NULL && !inherited && !o.check_config) {
		(void)fprintf(stderr,
		    PROGRAM ": no --listen, no socket on descriptor 0, not "
			    "started by a web server\n");
		usage(stderr);
		return EXIT_USAGE;
	}
	if (o.check_config)
		return check_config(&o);
	if (app_init(&app, o.config_path, &e) < 0 ||
	    app_open_store(&app, &e) < 0)
		die("%s", e.msg);
	set_log_level(&app);
	return run_server(&app, &o);
}
