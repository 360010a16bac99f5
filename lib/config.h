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
 * it. One typed table in config.c knows each key, its variable, its range and
 * its default. An unknown key in the file, an unknown ISOBOX_* variable or a
 * value out of range is an error that names file, line, key and what is allowed.
 * Both programs read the same file; each takes what it needs.
 */
struct config {
	/* Who may call (isobox.fcgi). */
	uint8_t (*key_hashes)[TOKEN_HASH_LEN]; /* api_key(s), key file */
	size_t key_count; /* 0: open mode, tenant "public" */
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
	char *runsc; /* path of the runsc program */
	char *runsc_platform; /* systrap, ptrace or kvm */
	char *init_path; /* the guest's isobox-init */
	uint32_t sandbox_overhead_mb; /* on top of memoryBytes */
	uint32_t boot_timeout_ms; /* a sandbox not up by then failed */
	char *cgroup; /* delegated subtree; NULL = own one */
	char **allowed_users; /* who may use the runner's socket, by
					 * name or number, NULL-terminated; the
					 * runner's own user always may */

	/* Places. */
	char *registry_dir;
	char *images_dir;
	char *runner_socket;
	char *state_dir; /* of isobox.fcgi */
	char *access_log; /* path, or "-" for stderr, "" for none */
	char *log_level;
};

/*
 * path NULL: ISOBOX_CONFIG, else the built-in default if that file exists. The
 * caller frees *ret by config_free(). ISOBOX_API_KEYS_FILE (one key a line, #
 * comments) that is set but empty or unreadable is an error.
 */
int config_load(const char *path, struct config **ret, struct err *e);
void config_free(struct config *c);

/* Only the keys, read again at SIGHUP: on success c's are replaced, on failure
 * the old ones stay. */
int config_reload_keys(const char *path, struct config *c, struct err *e);

/* Prints each key, its variable, value in force and meaning (for
 * --check-config); keys and secrets only as a count. */
void config_print(const struct config *c);

#endif
