/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/config_table.h"

#include <string.h>

#include "lib/config.h"

#define M(member) offsetof(struct config, member)

/* sizeof(sun_path) less its NUL, unix(7). */
#define SOCKET_PATH_MAX 107
#define PATH_LEN_MAX 4095

/* clang-format off */
#define ROW(key, var, type, secret, min, max, def, choices, text) \
	{#key, "ISOBOX_" var, type, secret, M(key), min, max, def, choices, text}
#define BOOL(key, var, def, text) \
	ROW(key, var, CONFIG_BOOL, false, 0, 1, def, NULL, text)
#define UINT(key, var, min, max, def, text) \
	ROW(key, var, CONFIG_UINT, false, min, max, def, NULL, text)
#define TEXT(key, var, min, max, secret, text) \
	ROW(key, var, CONFIG_TEXT, secret, min, max, NULL, NULL, text)
#define PATH(key, var, max, def, text) \
	ROW(key, var, CONFIG_PATH, false, 1, max, def, NULL, text)
#define LOGFILE(key, var, def, text) \
	ROW(key, var, CONFIG_LOG, false, 0, PATH_LEN_MAX, def, NULL, text)
#define CHOICE(key, var, choices, def, text) \
	ROW(key, var, CONFIG_CHOICE, false, 1, 16, def, choices, text)
#define LIST(key, var, min, max, secret, text) \
	ROW(key, var, CONFIG_LIST, secret, min, max, NULL, NULL, text)
#define LIST_DEFAULT(key, var, min, max, def, text) \
	ROW(key, var, CONFIG_LIST, false, min, max, def, NULL, text)

const struct config_key config_keys[] = {
	/* Who may call. */
	TEXT(api_key, "API_KEY", 1, CONFIG_ENTRY_MAX, true,
	    "a key that callers have to send"),
	LIST(api_keys, "API_KEYS", 1, 256, true,
	    "more keys, each a tenant of its own"),
	PATH(api_keys_file, "API_KEYS_FILE", PATH_LEN_MAX, NULL,
	    "a file of more keys, one a line, # begins a comment"),
	BOOL(require_auth, "REQUIRE_AUTH", "0",
	    "refuse to start without a key"),
	BOOL(memory_require_key, "MEMORY_REQUIRE_KEY", "0",
	    "memory and volumes need a key even when the rest is open"),

	/* Admission and rates. */
	UINT(concurrency, "CONCURRENCY", 1, 256, "4",
	    "runs at the same time"),
	UINT(acquire_wait_ms, "ACQUIRE_WAIT_MS", 0, 60000, "2000",
	    "how long a request waits for a free slot, in milliseconds"),
	UINT(rate_per_min, "RATE_PER_MIN", 0, 100000, "30",
	    "runs a minute for each client address; 0 is no limit"),
	UINT(rate_burst, "RATE_BURST", 1, 10000, "10",
	    "runs that an address may start at once"),
	UINT(threads, "THREADS", 1, 1024, "64",
	    "requests that isobox.fcgi serves at the same time"),

	/* The sandbox. */
	BOOL(allow_network, "ALLOW_NETWORK", "1",
	    "let runs have filtered access to the public internet"),
	LIST(egress_deny, "EGRESS_DENY", 0, 256, false,
	    "more IPv4 prefixes that no run may reach, such as the host's "
	    "address at a NAT router"),
	LIST(egress_allow, "EGRESS_ALLOW", 0, 64, false,
	    "exceptions from what no run may reach, as address or prefix and "
	    "port: 10.1.2.3:3128"),
	LIST_DEFAULT(resolvers, "RESOLVERS", 1, 3, "1.1.1.1,8.8.8.8",
	    "name servers of runs with network; a private one needs an "
	    "exception in egress_allow"),
	CHOICE(egress_driver, "EGRESS_DRIVER", "auto|slirp4netns|pasta", "auto",
	    "which program carries runs' packets into the host's network; "
	    "auto: slirp4netns if it works, else pasta"),
	PATH(slirp4netns, "SLIRP4NETNS", PATH_LEN_MAX, "/usr/bin/slirp4netns",
	    "where slirp4netns is"),
	PATH(pasta, "PASTA", PATH_LEN_MAX, "/usr/bin/pasta",
	    "where pasta is; of 3 May 2025 or later"),
	PATH(runsc, "RUNSC", PATH_LEN_MAX, NULL,
	    "the runsc program; not set: /usr/local/bin/runsc or "
	    "/usr/bin/runsc"),
	CHOICE(runsc_platform, "RUNSC_PLATFORM", "systrap|ptrace",
	    "systrap", "how gVisor takes over system calls"),
	PATH(init_path, "INIT", PATH_LEN_MAX, ISOBOX_LIBEXECDIR "/isobox-init",
	    "the program that is PID 1 in a sandbox"),
	UINT(sandbox_overhead_mb, "SANDBOX_OVERHEAD_MB", 16, 512, "48",
	    "memory of the sandbox itself, on top of a run's limit, in MiB"),
	UINT(boot_timeout_ms, "BOOT_TIMEOUT_MS", 1000, 120000, "10000",
	    "a sandbox that is not up by then has failed, in milliseconds"),
	BOOL(warm, "WARM", "1",
	    "keep sandboxes booted ahead, so that a run starts at once"),
	UINT(warm_max, "WARM_MAX", 1, 256, "8",
	    "at most so many sandboxes wait"),
	UINT(warm_mem_mb, "WARM_MEM_MB", 32, 1048576, "512",
	    "at most so much memory is theirs together, in MiB"),
	PATH(cgroup, "CGROUP", PATH_LEN_MAX, NULL,
	    "the delegated subtree, below the mount point of the cgroup file "
	    "system; not set: the one that isobox-runner was started in"),
	LIST(allowed_users, "ALLOWED_USERS", 0, 64, false,
	    "users, by name or number, that may use the runner's socket "
	    "besides the runner's own"),

	/* Places. */
	PATH(registry_dir, "REGISTRY", PATH_LEN_MAX,
	    ISOBOX_DATADIR "/registry", "the languages, one YAML file each"),
	PATH(images_dir, "IMAGES", PATH_LEN_MAX, "/var/lib/isobox/images",
	    "the languages' root file systems"),
	PATH(data_dir, "DATA_DIR", PATH_LEN_MAX, ISOBOX_DATADIR,
	    "where llms.txt and openapi.yaml are, which isobox.fcgi serves"),
	PATH(runner_socket, "RUNNER_SOCKET", SOCKET_PATH_MAX,
	    "/run/isobox/runner.sock",
	    "where isobox-runner listens for isobox.fcgi"),
	PATH(state_dir, "STATE_DIR", PATH_LEN_MAX, "/var/lib/isobox/state",
	    "what isobox.fcgi keeps"),
	PATH(workspaces_dir, "WORKSPACES", PATH_LEN_MAX,
	    "/var/lib/isobox/workspaces",
	    "the files of sessions and volumes; isobox-runner's own"),
	LOGFILE(access_log, "ACCESS_LOG", "-",
	    "one JSON line a request: a path, \"-\" for standard error, "
	    "\"\" for none"),
	CHOICE(log_level, "LOG_LEVEL", "error|warn|info|debug", "info",
	    "what is logged on standard error"),

	/* Sessions, volumes and kernels. */
	UINT(max_sessions, "MAX_SESSIONS", 0, 100000, "200",
	    "sessions at the same time"),
	UINT(max_sessions_per_tenant, "MAX_SESSIONS_PER_TENANT", 0, 100000,
	    "200", "sessions of one tenant at the same time"),
	UINT(session_ttl_sec, "SESSION_TTL_SEC", 60, 31536000, "86400",
	    "an idle session is removed after so many seconds"),
	UINT(session_disk_mb, "SESSION_DISK_MB", 1, 1048576, "512",
	    "disk of one session, in MiB"),
	UINT(sessions_disk_max_gb, "SESSIONS_DISK_MAX_GB", 1, 1048576, "10",
	    "disk of all sessions and volumes together, in GiB"),
	UINT(min_free_disk_gb, "MIN_FREE_DISK_GB", 0, 1048576, "4",
	    "no new session, no upload and no step that writes when less "
	    "than this is free, in GiB"),
	UINT(vol_disk_mb, "VOL_DISK_MB", 1, 1048576, "512",
	    "disk of one volume, in MiB"),
	UINT(max_volumes, "MAX_VOLUMES", 0, 100000, "100",
	    "volumes of one tenant"),
	UINT(kernel_slots, "KERNEL_SLOTS", 0, 256, "6",
	    "kernels in memory at the same time; 0 turns them off"),
	UINT(kernel_mem_mb, "KERNEL_MEM_MB", 64, 65536, "512",
	    "memory of one kernel, in MiB"),
	UINT(kernel_idle_sec, "KERNEL_IDLE_SEC", 10, 604800, "1800",
	    "a kernel idle for so many seconds is put on disk, or ended if "
	    "that cannot be"),
	UINT(kernel_max_life_sec, "KERNEL_MAX_LIFE_SEC", 60, 2592000, "14400",
	    "any kernel is ended after so many seconds in memory"),
	UINT(kernel_max_step_ms, "KERNEL_MAX_STEP_MS", 100, 3600000, "60000",
	    "the longest step in a kernel, in milliseconds"),
	UINT(kernel_hibernate_sec, "KERNEL_HIBERNATE_SEC", 0, 604800, "120",
	    "a kernel idle for so many seconds is put on disk; 0: after "
	    "kernel_idle_sec, or when its slot is needed"),
	UINT(kernel_warm, "KERNEL_WARM", 0, 64, "1",
	    "interpreters that wait for a new kernel session"),

	/* The agent. */
	TEXT(ai_base, "AI_BASE", 0, 2048, false,
	    "URL of the OpenAI-compatible service that the agent asks; "
	    "not set or \"\": no agent"),
	TEXT(ai_key, "AI_KEY", 0, 4096, true, "the key of that service"),
	TEXT(ai_model, "AI_MODEL", 0, 256, false, "the model to ask for"),
	UINT(ai_max_iters, "AI_MAX_ITERS", 1, 64, "8",
	    "rounds of tool calls in one request"),
	UINT(ai_rate_per_min, "AI_RATE_PER_MIN", 0, 100000, "6",
	    "agent requests a minute for each address; 0 is no limit"),
	BOOL(ai_search, "AI_SEARCH", "1", "let the agent search the web"),
};
/* clang-format on */

const size_t config_key_count = sizeof(config_keys) / sizeof(config_keys[0]);

const struct config_key *config_key_by_name(const char *name)
{
	for (size_t i = 0; i < config_key_count; i++)
		if (strcmp(config_keys[i].name, name) == 0)
			return &config_keys[i];
	return NULL;
}

const struct config_key *config_key_by_env(const char *env, size_t env_len)
{
	for (size_t i = 0; i < config_key_count; i++)
		if (strlen(config_keys[i].env) == env_len &&
		    memcmp(config_keys[i].env, env, env_len) == 0)
			return &config_keys[i];
	return NULL;
}
