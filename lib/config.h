/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CONFIG_H
#define ISOBOX_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/token.h"

/*
 * The configuration: defaults, then one YAML file, then ISOBOX_* variables over
 * it. One typed table in config_table.c knows each key, its variable, its range
 * and its default. An unknown key in the file, an unknown ISOBOX_* variable or a
 * value out of range is an error that names file, line, key and what is allowed.
 * Both programs read the same file; each takes what it needs.
 */
struct config {
	/* Who may call (isobox.fcgi). */
	uint8_t (*key_hashes)[TOKEN_HASH_LEN]; /* api_key(s), key file */
	size_t key_count; /* 0: open mode, tenant "public" */
	char *api_keys_file; /* NULL = none */
	bool require_auth; /* refuse open mode at start */
	bool memory_require_key;

	/* Admission and rates. */
	uint32_t concurrency; /* slots of one-shot runs */
	uint32_t acquire_wait_ms; /* bounded wait for a slot */
	uint32_t rate_per_min; /* 0 = no rate limit */
	uint32_t rate_burst;
	uint32_t threads; /* of isobox.fcgi, 64 */

	/* The sandbox (isobox-runner). */
	bool allow_network;
	char **egress_deny; /* more prefixes that no run may reach */
	char **egress_allow; /* exceptions, "prefix:port" */
	char **resolvers; /* of runs with network, IPv4 addresses */
	char *egress_driver; /* auto, slirp4netns or pasta */
	char *slirp4netns; /* paths of these programs */
	char *pasta;
	char *runsc; /* path of the runsc program */
	char *runsc_platform; /* systrap or ptrace */
	char *init_path; /* the guest's isobox-init */
	uint32_t sandbox_overhead_mb; /* on top of memoryBytes */
	uint32_t boot_timeout_ms; /* a sandbox not up by then failed */
	bool warm; /* keep sandboxes booted ahead */
	uint32_t warm_max; /* at most so many of them */
	uint32_t warm_mem_mb; /* and so much memory in all */
	char *cgroup; /* delegated subtree; NULL = own one */
	char **allowed_users; /* who may use the runner's socket, by
					 * name or number, NULL-terminated; the
					 * runner's own user always may */

	/* Places. */
	char *registry_dir;
	char *images_dir;
	char *data_dir; /* the texts that isobox.fcgi serves */
	char *runner_socket;
	char *state_dir; /* of isobox.fcgi */
	char *workspaces_dir; /* of isobox-runner */
	char *access_log; /* path, or "-" for stderr, "" for none */
	char *log_level; /* a word of log_level_parse() */

	/* Sessions, volumes and kernels. */
	uint32_t max_sessions; /* of all tenants */
	uint32_t max_sessions_per_tenant;
	uint32_t session_ttl_sec;
	uint32_t session_disk_mb; /* quota of one session */
	uint32_t sessions_disk_max_gb; /* of all together */
	uint32_t min_free_disk_gb; /* below it no new session */
	uint32_t vol_disk_mb; /* quota of one volume */
	uint32_t max_volumes; /* of one tenant */
	uint32_t kernel_slots;
	uint32_t kernel_mem_mb;
	uint32_t kernel_idle_sec;
	uint32_t kernel_max_life_sec;
	uint32_t kernel_max_step_ms;
	uint32_t kernel_hibernate_sec;
	uint32_t kernel_warm; /* interpreters that wait */

	/* The agent. */
	char *ai_base; /* URL of the upstream; NULL or "" = off */
	char *ai_key;
	char *ai_model;
	uint32_t ai_max_iters;
	uint32_t ai_rate_per_min; /* 0 = no rate limit */
	bool ai_search;

	/* The keys themselves, only while they are loaded: NULL afterwards. */
	char *api_key;
	char **api_keys;
};

/*
 * path NULL: ISOBOX_CONFIG, else the built-in default if that file exists. The
 * caller frees *ret by config_free(). ISOBOX_API_KEYS_FILE (one key a line, #
 * comments) that is set but empty or unreadable is an error.
 */
int config_load(const char *path, struct config **ret, struct err *e);
void config_free(struct config *c);

/* The same for isobox-runner, which has no use for keys and no right to read
 * their file: key_count is 0 and require_auth is not asked for. */
int config_load_without_keys(
    const char *path, struct config **ret, struct err *e);

/* Only the keys, read again at SIGHUP: on success c's are replaced (the caller
 * keeps readers away), on failure the old ones stay. Fails too when no key is
 * left: a service that asked for one does not open up while it runs. */
int config_reload_keys(const char *path, struct config *c, struct err *e);

/* Prints each key, its variable, value in force and meaning (for
 * --check-config); keys and secrets only as a count. */
void config_print(const struct config *c);

#endif
