/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_JOB_H
#define ISOBOX_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/limits.h"

/* A byte string that may hold NUL; borrowed or owned as its holder says. */
struct blob {
	const uint8_t *data;
	size_t len;
};

struct job_file {
	struct blob name; /* checked by path_check_name() */
	struct blob content;
};

/*
 * What isobox.fcgi asks the runner to run. Built by fcgi from a request; the
 * runner decodes it and checks everything again (runtime known, limits within
 * bounds, names, counts): it does not trust the web side. A decoded job points
 * into the payload that it came from and owns only its arrays.
 */
struct job {
	struct blob request_id; /* for logs; [A-Za-z0-9_-]{1,64} */
	struct blob runtime; /* registry name, no alias */
	struct blob version;
	struct limits limits;
	bool network;
	struct blob *allow; /* host names that may be reached, patterns of
			     * hostname.h; none: all that is not denied */
	size_t allow_count;
	uint32_t entry; /* index of the entry point in files */
	struct job_file *files;
	size_t file_count;
	struct blob *args;
	size_t arg_count;
	struct blob stdin_data;
	struct blob session; /* whose step it is; empty: one-shot */
	struct blob volume; /* at /memory; empty: none. Only of a step */
	bool kernel; /* a step in the session's live kernel: its memory, network
		      * and processes are the kernel's, args are not used, and
		      * wall_time_ms may be up to LIMIT_KERNEL_WALL_MAX_MS */
	bool display; /* of a kernel: a text/plain artifact of a plain value */
};

void job_encode(const struct job *j, struct buf *out); /* payload only */
int job_decode(
    const uint8_t *payload, size_t len, struct job *ret, struct err *e);
void job_done(struct job *j); /* frees the arrays */

/*
 * What the supervisor tells isobox-init, already resolved: argv with the entry
 * in place, environment, limits inside the guest. Decoded like struct job.
 */
struct guest_job {
	struct blob cwd; /* "/box" or "/workspace" */
	struct blob *compile; /* argv; count 0 = no compile step */
	size_t compile_count;
	struct blob *run;
	size_t run_count;
	struct blob *env; /* "KEY=value" */
	size_t env_count;
	struct job_file *files; /* written below /box, mode 0644 */
	size_t file_count;
	struct blob stdin_data;
	uint32_t pids; /* RLIMIT_NPROC of the program */
	uint32_t output_bytes; /* forward no more than this + 1 */
	uint64_t tmpfs_bytes; /* RLIMIT_FSIZE; 0 = none */
};

void guest_job_encode(const struct guest_job *j, struct buf *out);
int guest_job_decode(
    const uint8_t *payload, size_t len, struct guest_job *ret, struct err *e);
void guest_job_done(struct guest_job *j);

/*
 * What the supervisor tells isobox-init ahead of a job that it does not know
 * yet: start this interpreter, or compiler, and have it wait, the named modules
 * loaded. A job
 * that differs from it in more than its files, further arguments, input and
 * limits is started as if nobody had waited.
 */
struct guest_warm {
	struct blob entry; /* a file's name; holds a line feed meanwhile */
	struct blob cwd; /* as in struct guest_job, likewise below */
	struct blob *run; /* the entry in place, without a request's args */
	size_t run_count;
	struct blob *env;
	size_t env_count;
	struct blob *preload;
	size_t preload_count;
	bool compiles; /* run is not the program but the compile step */
};

void guest_warm_encode(const struct guest_warm *w, struct buf *out);
int guest_warm_decode(
    const uint8_t *payload, size_t len, struct guest_warm *ret, struct err *e);
void guest_warm_done(struct guest_warm *w);

/* What came of it. Its text is the guest's: for the log, if it is readable. */
struct guest_warmed {
	bool waiting; /* false: a job will be started plainly */
	struct blob *missing; /* what could not be preloaded */
	size_t missing_count;
	struct blob why; /* not waiting: the reason */
};

void guest_warmed_encode(const struct guest_warmed *w, struct buf *out);
int guest_warmed_decode(const uint8_t *payload, size_t len,
    struct guest_warmed *ret, struct err *e);
void guest_warmed_done(struct guest_warmed *w);

/* How the program ended, as init saw it. */
struct guest_exit {
	uint32_t exit_code; /* as a shell: 128 + n for a signal */
	uint32_t signal; /* 0 = none */
	uint64_t cpu_us; /* user and system, compile step included */
	bool compile_failed; /* the compile step ended it */
};

void guest_exit_encode(const struct guest_exit *x, struct buf *out);
int guest_exit_decode(
    const uint8_t *payload, size_t len, struct guest_exit *ret, struct err *e);

/* A figure that nobody knows, in an unsigned member: a killed program's CPU. */
#define RUN_RESULT_UNKNOWN UINT64_MAX

/* What became of the kernel in which a step ran. */
enum run_kernel {
	RUN_KERNEL_NONE = 0, /* no kernel's step */
	RUN_KERNEL_ALIVE,
	RUN_KERNEL_DEAD,
};

/* The result of a run, from the supervisor to fcgi. Phases are microseconds. */
struct run_result {
	uint32_t exit_code;
	uint32_t signal;
	bool timed_out;
	bool oom_killed;
	bool stdout_truncated;
	bool stderr_truncated;
	bool network;
	uint64_t duration_us; /* program start to end */
	uint64_t cpu_us; /* or RUN_RESULT_UNKNOWN */
	int64_t memory_peak_bytes; /* -1: the kernel does not tell */
	uint64_t queue_us; /* phases before the program */
	uint64_t boot_us; /* from its slot to its start */
	bool warm; /* a sandbox waited for it */
	enum run_kernel kernel; /* likewise of a kernel's step: */
	bool raised; /* an exception ended it, which stderr shows */
	bool interrupted; /* by the client, or at the end of its wall time */
	bool artifacts_dropped; /* too large, or too many */
};

void run_result_encode(const struct run_result *x, struct buf *out);
int run_result_decode(
    const uint8_t *payload, size_t len, struct run_result *ret, struct err *e);

#endif
