/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CHECKPOINT_IMAGE_H
#define ISOBOX_CHECKPOINT_IMAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"
#include "runner/checkpoint.h"

/* Inside checkpoint_save.c and checkpoint_image.c: what the supervisor and the
 * process that saves have between them. */

/* Beyond the order's deadline: to pause the sandbox, for whoever breaks that off
 * does not know how it stands; and to have it go on. */
#define SAVE_PAUSE_US 2000000u
#define SAVE_RESUME_US 2000000u

/* In memory that both have. */
struct save_state {
	atomic_bool stands; /* the sandbox does, or may */
};

/* What the process tells the supervisor, once or twice. */
struct save_message {
	bool stands; /* and this asks for an answer, a struct err */
	struct err err; /* code 0: done */
	struct checkpoint_saved saved;
};

struct save_call {
	const struct checkpoint_order *order;
	struct save_state *state;
	int parent_fd; /* SOCK_SEQPACKET */
	uint64_t deadline_us;
};

/* Saves; after that fails, the sandbox goes on as if nobody had tried. */
_Noreturn void checkpoint_saver_main(const struct save_call *c);

/* After one that broke off, wherever it was: only has the sandbox go on. */
_Noreturn void checkpoint_undoer_main(const struct save_call *c);

#endif
