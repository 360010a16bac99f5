/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. When a step has ended, a sandbox with its session's mounts
 * is booted for the next one. While a step runs there is none: so nothing but the
 * file API writes to a workspace that is mounted in a sandbox that waits, and that
 * is seen there (gVisor asks the host anew, see bundle.c). What waits is for the
 * same runtime and network as the last step; a step that wants something else, the
 * end of the session or of its volume, and time, give it up.
 */
#include "lib/clock.h"
#include "runner/pool_int.h"
#include "runner/server_int.h"

static void drop_seats(struct server *s, const struct demand_entry *entry)
{
	struct worker *w;

	while ((w = pool_find_seat(s, entry)) != NULL)
		pool_drop(s, w);
}

static void forget(struct server *s, struct demand_entry *entry)
{
	drop_seats(s, entry);
	demand_session_remove(entry);
}

/* A sandbox that has modules loaded ahead does for who wants none, and one without
 * them for who does. */
static bool does_for(
    const struct demand_entry *entry, const struct demand_kind *kind)
{
	return entry->kind.runtime == kind->runtime &&
	       entry->kind.network == kind->network &&
	       entry->kind.by_name == kind->by_name &&
	       entry->kind.volume == kind->volume;
}

static struct demand_entry *entry_of(
    struct server *s, const struct demand_kind *kind)
{
	struct demand *d = &s->pool.demand;
	struct demand_entry *entry = demand_session(d, kind->session);

	if (entry != NULL && does_for(entry, kind))
		return entry;
	if (entry != NULL)
		forget(s, entry);
	if (kind->runtime->warm == WARM_NONE || kind->session->gone ||
	    (kind->volume != NULL && kind->volume->gone))
		return NULL;
	return demand_session_add(d, kind);
}

bool pool_claim_step(struct server *s, const struct demand_kind *kind,
    struct client *c, uint64_t queue_us)
{
	struct demand_entry *entry = entry_of(s, kind);
	bool claimed;

	if (entry == NULL)
		return false;
	claimed = pool_claim_kind(s, entry, c, queue_us);
	drop_seats(s, entry);
	demand_session_preload(&s->pool.demand, entry, kind->preload);
	entry->busy = true;
	return claimed;
}

void pool_step_ended(struct server *s, const struct workspace *session)
{
	struct demand_entry *entry = demand_session(&s->pool.demand, session);

	if (entry == NULL)
		return;
	entry->busy = false;
	entry->seen_us = clock_us();
	pool_poke(s, 0);
}

void pool_forget(struct server *s, const struct workspace *w)
{
	const struct demand *d = &s->pool.demand;

	for (size_t i = 0; i < d->count; i++)
		if (d->entries[i].kind.session == w ||
		    d->entries[i].kind.volume == w)
			forget(s, &d->entries[i]);
}
