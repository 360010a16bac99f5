/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_KERNELPROTO_H
#define ISOBOX_KERNELPROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/job.h"

/*
 * What isobox.fcgi asks of live kernels, one connection an operation
 * (PROTO_KERNEL), and what it is answered: PROTO_KERNEL_INFO or PROTO_FAIL.
 *
 *	KERNEL_CREATE	 makes the session's workspace and its kernel; INFO when
 *			 that takes steps. too_many_kernels, storage_full,
 *			 volume_not_found, kernel_unsupported
 *	KERNEL_INTERRUPT interrupts the step that runs; INFO at once, with busy
 *			 as it was. Nothing is interrupted when none runs
 *	KERNEL_FORK	 a second session with a copy of kernel and workspace;
 *			 INFO of the new one. session_busy, too_many_kernels,
 *			 kernel_dead, quota_exceeded, storage_full
 *	KERNEL_STAT	 INFO
 *
 * session_not_found when there is no such kernel; a dead one still has INFO.
 * A step is a PROTO_RUN whose job says kernel: its answer may hold
 * PROTO_ARTIFACT and PROTO_ARTIFACT_DATA among the output; it may fail with
 * kernel_dead, too_many_kernels, session_busy. The WS_REMOVE of the session ends
 * its kernel, too.
 */
enum kernel_op {
	KERNEL_CREATE = 1,
	KERNEL_INTERRUPT,
	KERNEL_FORK,
	KERNEL_STAT,
};

/* Strings point into the payload that a request was decoded from; the array is
 * owned. */
struct kernel_request {
	enum kernel_op op;
	struct blob request_id; /* for logs; [A-Za-z0-9_-]{1,64} */
	struct blob id; /* of the session; the same form */
	struct blob new_id; /* FORK */
	struct blob runtime; /* CREATE: registry name, no alias */
	struct blob version; /* CREATE */
	struct blob volume; /* CREATE: at /memory; empty: none */
	bool network; /* CREATE: for the kernel's whole life */
	struct blob *allow; /* CREATE: as in struct job */
	size_t allow_count;
	uint64_t tenant; /* CREATE: whose it is; any number, to compare */
};

void kernel_request_encode(const struct kernel_request *q, struct buf *out);
int kernel_request_decode(const uint8_t *payload, size_t len,
    struct kernel_request *ret, struct err *e);
void kernel_request_done(struct kernel_request *q);

enum kernel_state {
	KERNEL_STARTING = 1,
	KERNEL_RESIDENT,
	KERNEL_HIBERNATED,
	KERNEL_DEAD,
};

struct kernel_info {
	enum kernel_state state;
	bool busy; /* a step runs, or waits for its turn */
	char reason[256]; /* why it is dead; or stays resident; or "" */
	int64_t memory_bytes; /* -1: not resident, or not known */
	uint64_t checkpoint_bytes; /* on disk */
	uint64_t steps; /* that it has ended */
	bool network; /* it has one */
	char network_reason[256]; /* wanted, but it has none: why */
};

void kernel_info_encode(const struct kernel_info *i, struct buf *out);
int kernel_info_decode(
    const uint8_t *payload, size_t len, struct kernel_info *ret, struct err *e);

/* The word for a state; static storage. */
const char *kernel_state_word(enum kernel_state state);

#endif
