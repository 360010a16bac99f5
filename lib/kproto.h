/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_KPROTO_H
#define ISOBOX_KPROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/job.h"

/*
 * Messages of a kernel, an interpreter that runs one step after another and
 * keeps its variables: between supervisor and isobox-init, and between init and
 * the kernel's process, which nobody trusts. docs/guest-protocol.md has their
 * order. What a decoder returns points into the payload; the arrays are owned.
 */

/* PROTO_GUEST_KERNEL, supervisor -> init: the interpreter to start. */
struct guest_kernel {
	struct blob language; /* whose kernel: "python", "node" */
	struct blob cwd;
	struct blob *run; /* argv of an interpreter that reads its program
			   * from standard input */
	size_t run_count;
	struct blob *env; /* "KEY=value" */
	size_t env_count;
	struct blob *preload; /* modules to load before it is ready */
	size_t preload_count;
	uint32_t pids; /* RLIMIT_NPROC */
	uint64_t file_bytes; /* RLIMIT_FSIZE; 0 = none */
};

void guest_kernel_encode(const struct guest_kernel *k, struct buf *out);
int guest_kernel_decode(const uint8_t *payload, size_t len,
    struct guest_kernel *ret, struct err *e);
void guest_kernel_done(struct guest_kernel *k);

/* PROTO_GUEST_KERNEL_READY, kernel -> init -> supervisor. Also the part of
 * struct guest_kernel that the kernel itself gets (PROTO_GUEST_KERNEL). */
struct guest_modules {
	struct blob *names; /* of READY: what could not be preloaded */
	size_t count;
};

void guest_modules_encode(const struct guest_modules *m, struct buf *out);
int guest_modules_decode(const uint8_t *payload, size_t len,
    struct guest_modules *ret, struct err *e);
void guest_modules_done(struct guest_modules *m);

/* PROTO_GUEST_STEP, supervisor -> init -> kernel. */
struct guest_step {
	uint32_t number; /* of the supervisor's choice; in file names */
	bool display; /* a text/plain artifact of a plain value, too */
	uint32_t output_bytes; /* for each of stdout and stderr */
	uint32_t entry; /* index of what is run in files */
	struct job_file *files; /* if there are several, written to /box */
	size_t file_count;
	struct blob stdin_data;
};

void guest_step_encode(const struct guest_step *s, struct buf *out);
int guest_step_decode(
    const uint8_t *payload, size_t len, struct guest_step *ret, struct err *e);
void guest_step_done(struct guest_step *s);

/* PROTO_GUEST_ARTIFACT, kernel -> init -> supervisor; its bytes follow in
 * frames of PROTO_GUEST_ARTIFACT_DATA. */
struct guest_artifact {
	struct blob type; /* a MIME type, checked */
	bool text; /* UTF-8, as far as one believes it; else bytes */
	uint32_t bytes; /* at most LIMIT_ARTIFACT, base64 counted */
};

void guest_artifact_encode(const struct guest_artifact *a, struct buf *out);
int guest_artifact_decode(const uint8_t *payload, size_t len,
    struct guest_artifact *ret, struct err *e);

/* PROTO_GUEST_STEP_DONE. */
struct guest_step_result {
	uint32_t number; /* of the step */
	uint32_t exit_code;
	bool raised; /* it ended by an exception that was shown */
	bool interrupted; /* by the one of an interrupt */
	bool dropped; /* an artifact was too large or one too many */
	uint64_t cpu_us; /* as init sees it; the kernel says 0 */
};

void guest_step_result_encode(
    const struct guest_step_result *x, struct buf *out);
int guest_step_result_decode(const uint8_t *payload, size_t len,
    struct guest_step_result *ret, struct err *e);

#endif
