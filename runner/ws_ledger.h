/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_WS_LEDGER_H
#define ISOBOX_WS_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "runner/ws_walk.h"

/*
 * What each workspace takes of the disk, in memory that the runner shares with its
 * children: they count and write it down, all of them and the runner read it.
 *
 * A count is good as long as nobody but us has written since. `state` says so: it
 * is odd while a step runs, and moves on whenever something happened that was not
 * added up. The count belongs to the state of `counted`.
 */
struct ws_account {
	atomic_uint_fast64_t bytes;
	atomic_uint_fast64_t files;
	atomic_uint_fast32_t state;
	atomic_uint_fast32_t counted; /* never odd; 1 at first */
	/* Of the session's kernel: its checkpoint, as the runner knows it, and
	 * what a save that is under way may come to take. Only ever set, so
	 * that nothing is given back twice. */
	atomic_uint_fast64_t saved;
	atomic_uint_fast64_t saving;
};

/* Room that an upload has been promised, until its bytes are in its account. The
 * runner clears the claim of a child that has ended, however it did. */
struct ws_claim {
	atomic_uint_fast32_t account;
	atomic_uint_fast64_t bytes;
};

struct ws_ledger {
	struct ws_account *accounts;
	struct ws_claim *claims;
	size_t account_max;
	size_t claim_max;
};

int ws_ledger_open(
    size_t accounts, size_t claims, struct ws_ledger *ret, struct err *e);
void ws_ledger_close(struct ws_ledger *l);

/* An account begins: nothing is known of it. */
void ws_account_reset(struct ws_account *a);

/* Whether bytes and files are right now. */
bool ws_account_good(const struct ws_account *a);

/* They are not, and no step runs, whose watch counts. */
bool ws_account_doubtful(const struct ws_account *a);

/* A count that was begun at that state. */
void ws_account_set(
    struct ws_account *a, uint_fast32_t state, const struct ws_usage *usage);

/* Something else has changed: count again. */
void ws_account_doubt(struct ws_account *a);

/* So much is gone; not more than there is, since what a program has written may
 * not have been counted yet. */
void ws_account_take_off(struct ws_account *a, uint64_t bytes);

/* Between these a program writes there. */
void ws_account_step_begins(struct ws_account *a);
void ws_account_step_ends(struct ws_account *a);

/* Promised of one account; all bytes of all accounts with what is promised; and
 * only what is, whether some of it has been written by now or not. */
uint64_t ws_ledger_claimed(const struct ws_ledger *l, size_t account);
uint64_t ws_ledger_total(const struct ws_ledger *l);
uint64_t ws_ledger_promised(const struct ws_ledger *l);

#endif
