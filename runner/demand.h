/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_DEMAND_H
#define ISOBOX_DEMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/registry.h"

/*
 * For what sandboxes should wait: bookkeeping without side effects; the clock is
 * the caller's (CLOCK_MONOTONIC, microseconds).
 *
 * Each kind of sandbox has a score: the requests for it, of which half is
 * forgotten in DEMAND_HALF_LIFE_US. Seats are shared out by the highest averages
 * (D'Hondt): the next goes to the kind with the greatest score / (seats it has +
 * 1). When all are taken, one is given up for another kind only if that is worth
 * twice as much, so that they do not change hands all the time.
 *
 * A session is a kind of its own, for one sandbox with its mounts: the one of its
 * next step, as long as steps keep coming. All sessions together get no more than
 * half of what there is, so a tenant with many cannot have it all.
 */
#define DEMAND_HALF_LIFE_US 120000000u

/* The score of one request. */
#define DEMAND_UNIT (1u << 20)

/* What nobody asked for lately: one seat for each language, if there is room,
 * and no second one. */
#define DEMAND_PRIOR (DEMAND_UNIT / 10)
#define DEMAND_LEAST (DEMAND_UNIT * 6 / 100)

/* A session's sandbox waits no longer after the last step. */
#define DEMAND_SESSION_IDLE_US 120000000u

/* The part of seats and bytes that sessions may have. */
#define DEMAND_SESSION_PART 2u

/* Of a sandbox that was never measured. */
#define DEMAND_GUESS_BYTES (48ull << 20)
#define DEMAND_GUESS_PRELOAD_BYTES (160ull << 20)

struct workspace;

struct demand_kind {
	const struct runtime *runtime;
	bool preload; /* the runtime's modules are loaded */
	bool network;
	bool by_name; /* to names of a list, which comes with the job */
	/* Whose directories are mounted; NULL: nobody's. Not looked into. */
	struct workspace *session;
	struct workspace *volume;
};

struct demand_entry {
	struct demand_kind kind; /* without a runtime: a session's, free */
	uint64_t score; /* at at_us */
	uint64_t at_us;
	uint64_t prior;
	uint32_t have; /* seats: sandboxes that wait or boot for that */
	uint64_t bytes; /* of one of them */
	uint64_t boot_us; /* that the last one took; 0 = none yet */
	bool lukewarm; /* the last one was, and the log has been told */
	/* Of a session: */
	bool busy; /* a step runs there: nothing is booted */
	bool in_vain; /* the last one was: none until steps come closer */
	uint64_t seen_us; /* when a step began or ended */
};

struct demand {
	struct demand_entry *entries;
	size_t count;
	uint32_t seats; /* in all */
	uint32_t seats_of_one; /* kind */
	uint64_t bytes; /* of all sandboxes together */
};

enum demand_step {
	DEMAND_NOTHING,
	DEMAND_BOOT, /* a sandbox of that kind */
	DEMAND_DROP /* one of that kind, to make room */
};

/* Entries for all that r's runtimes allow to wait; `network`: whether a request
 * that does not say so gets one. The three bounds are the caller's to fill in
 * before. The caller frees by demand_done(). */
int demand_init(
    struct demand *d, const struct registry *r, bool network, struct err *e);
void demand_done(struct demand *d);

/* Takes over the scores of the entries of `old` for the same name and version. */
void demand_inherit(struct demand *d, const struct demand *old);

/* NULL when such a sandbox never waits. */
struct demand_entry *demand_find(
    const struct demand *d, const struct demand_kind *kind);

/* A request for that kind came. */
void demand_note(struct demand_entry *e, uint64_t now_us);

/* The entry of a session, whatever else its kind is; NULL: none. */
struct demand_entry *demand_session(
    const struct demand *d, const struct workspace *session);

/* A new one, perhaps in the place of one that nobody waits for; NULL: no room. */
struct demand_entry *demand_session_add(
    struct demand *d, const struct demand_kind *kind);

/* From now on with or without the runtime's modules. */
void demand_session_preload(
    const struct demand *d, struct demand_entry *e, bool preload);

/* The session is gone, or is another kind now; it has no seat. */
void demand_session_remove(struct demand_entry *e);

/* What to do next, to whom in *ret. It is the caller's to count `have`. */
enum demand_step demand_next(
    const struct demand *d, uint64_t now_us, struct demand_entry **ret);

/* The kind whose seat is worth least; NULL when there is no seat. */
struct demand_entry *demand_least(const struct demand *d, uint64_t now_us);

/* What all sandboxes together take. */
uint64_t demand_bytes(const struct demand *d);

#endif
