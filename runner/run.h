/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_RUN_H
#define ISOBOX_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/proto.h"
#include "runner/sandbox.h"
#include "runner/supervisor.h"

/* The state of one run, inside its supervisor: supervisor.c and guest.c. */

enum phase {
	PHASE_BOOT, /* until PROTO_GUEST_READY */
	PHASE_START, /* until PROTO_GUEST_STARTED */
	PHASE_RUN
};

enum stream {
	STREAM_OUT,
	STREAM_ERR,
	STREAM_COUNT
};

struct run {
	const struct run_order *order;
	struct sandbox box;
	enum phase phase;
	enum run_end end;
	char why[sizeof(((struct err *)0)->msg)]; /* UTF-8, for the client */
	struct buf to_guest;
	struct buf from_guest;
	struct buf to_client;
	struct buf log;
	bool guest_eof;
	uint64_t begun_us; /* sandbox_start() */
	uint64_t started_us; /* PROTO_GUEST_STARTED */
	uint64_t deadline_us;
	uint64_t oom_recheck_until_us; /* 0: no notice came */
	size_t sent[STREAM_COUNT];
	bool truncated[STREAM_COUNT];
	int64_t memory_idle; /* charged before the program */
	struct run_result result;
};

/* Ends the run; a second end is ignored. */
void run_end(struct run *r, enum run_end end, const char *why);

/* Ends the run and is true when the kernel has killed in the leaf: for the leaf's
 * own limit, and nothing else is "oomKilled", or because the host had no more. */
bool run_check_oom(struct run *r);

/* Queues a frame for the client. */
void run_put_client(
    struct run *r, enum proto_type type, const void *data, size_t len);

/* guest.c: out_fd and in_fd of the sandbox are ready. */
void guest_read(struct run *r);
void guest_write(struct run *r);

#endif
