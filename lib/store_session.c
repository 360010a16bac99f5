/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sqlite3.h>
#include <string.h>

#include "lib/store_db.h"

/* A use within so long of the last one is not written down: this part of the
 * ttl, and no more than that. */
#define TOUCH_PART 50
#define TOUCH_MAX_MS 5000

static int not_found(struct err *e)
{
	return err_set(e, ERR_SESSION_NOT_FOUND, ENOENT, "%s", "");
}

/* Whether the volume can be had: the writer is alone, so it stays like this. */
static int check_volume(
    struct store_tx *t, const struct store_session *n, struct err *e)
{
	struct store_volume v = {0};
	int r;

	if (n->volume[0] == '\0')
		return 0;
	r = store_volume_find(t, n->tenant, n->volume, &v, e);
	if (r < 0)
		return r;
	if (v.holder[0] != '\0')
		return err_set(e, ERR_VOLUME_BUSY, EBUSY,
		    "another session holds the volume");
	return 0;
}

static int check_count(struct store_tx *t, const char *tenant,
    const struct store_session_max *max, struct err *e)
{
	int64_t all = 0;
	int64_t own = 0;
	int r;

	if ((r = store_ask(t, STMT_SESSION_COUNT, &all, e, "")) < 0 ||
	    (r = store_ask(t, STMT_SESSION_COUNT_OF, &own, e, "t", tenant)) < 0)
		return r;
	if (own >= max->of_tenant)
		return err_set(e, ERR_TOO_MANY_SESSIONS, EAGAIN,
		    "you have %u sessions already", max->of_tenant);
	if (all >= max->all)
		return err_set(e, ERR_TOO_MANY_SESSIONS, EAGAIN,
		    "there are %u sessions already", max->all);
	return 0;
}

static int insert(struct store_tx *t, const struct store_session *n,
    const struct store_session_max *max, struct err *e)
{
	int r;

	if ((r = check_count(t, n->tenant, max, e)) < 0 ||
	    (r = check_volume(t, n, e)) < 0)
		return r;
	return store_run(t, STMT_SESSION_INSERT, e, "ttbittitiiii", n->id,
	    n->tenant, n->token_hash, sizeof(n->token_hash), (int64_t)n->type,
	    n->runtime, n->version, (int64_t)n->network,
	    n->volume[0] != '\0' ? n->volume : NULL, (int64_t)n->ttl_sec,
	    n->created_ms, n->used_ms, n->used_ms + n->ttl_sec * INT64_C(1000));
}

int store_session_create(struct store *s, const struct store_session *new,
    const struct store_session_max *max, struct err *e)
{
	struct store_tx t;
	int r = store_write(s, false, &t, e);

	if (r < 0)
		return r;
	r = store_end(&t, insert(&t, new, max, e), e);
	return r < 0 ? r : 0;
}

static void take_row(sqlite3_stmt *st, struct store_session *ret)
{
	const void *hash = sqlite3_column_blob(st, 2);

	memset(ret, 0, sizeof(*ret));
	store_text(st, 0, ret->id, sizeof(ret->id));
	store_text(st, 1, ret->tenant, sizeof(ret->tenant));
	/* Its length is checked by the table. */
	if (hash != NULL)
		memcpy(ret->token_hash, hash, sizeof(ret->token_hash));
	ret->type = sqlite3_column_int(st, 3) == STORE_SESSION_KERNEL
			? STORE_SESSION_KERNEL
			: STORE_SESSION_FILESYSTEM;
	store_text(st, 4, ret->runtime, sizeof(ret->runtime));
	store_text(st, 5, ret->version, sizeof(ret->version));
	ret->network = sqlite3_column_int(st, 6) != 0;
	store_text(st, 7, ret->volume, sizeof(ret->volume));
	ret->ttl_sec = (uint32_t)sqlite3_column_int64(st, 8);
	ret->created_ms = sqlite3_column_int64(st, 9);
	ret->used_ms = sqlite3_column_int64(st, 10);
	ret->expires_ms = sqlite3_column_int64(st, 11);
}

static int get(struct store_tx *t, const char *tenant, const char *id,
    struct store_session *ret, struct err *e)
{
	sqlite3_stmt *st = store_bind(
	    t, STMT_SESSION_GET, e, "tti", id, tenant, store_now_ms());
	int r;

	if (st == NULL)
		return -e->code;
	r = store_step(t, st, e);
	if (r > 0)
		take_row(st, ret);
	store_done(st);
	return r == 0 ? not_found(e) : r;
}

int store_session_get(struct store *s, const char *tenant, const char *id,
    struct store_session *ret, struct err *e)
{
	struct store_tx t;
	int r = store_read(s, &t, e);

	if (r < 0)
		return r;
	r = store_end(&t, get(&t, tenant, id, ret, e), e);
	return r < 0 ? r : 0;
}

/* 1 when the use is worth a write, 0 when it is not. */
static int is_due(
    struct store_tx *t, const char *id, int64_t now, struct err *e)
{
	sqlite3_stmt *st = store_bind(t, STMT_SESSION_USED, e, "ti", id, now);
	int64_t grace;
	int r;

	if (st == NULL)
		return -e->code;
	r = store_step(t, st, e);
	if (r > 0) {
		grace = sqlite3_column_int64(st, 1) * 1000 / TOUCH_PART;
		if (grace > TOUCH_MAX_MS)
			grace = TOUCH_MAX_MS;
		r = now - sqlite3_column_int64(st, 0) >= grace;
	} else if (r == 0) {
		r = not_found(e);
	}
	store_done(st);
	return r;
}

int store_session_touch(struct store *s, const char *id, struct err *e)
{
	int64_t now = store_now_ms();
	struct store_tx t;
	int r = store_read(s, &t, e);

	if (r < 0)
		return r;
	r = store_end(&t, is_due(&t, id, now, e), e);
	if (r <= 0)
		return r;
	r = store_write(s, true, &t, e);
	if (r < 0)
		return r;
	r = store_run(&t, STMT_SESSION_TOUCH, e, "ti", id, now);
	if (r == 0)
		r = not_found(e);
	r = store_end(&t, r, e);
	return r < 0 ? r : 0;
}

int store_session_end(
    struct store *s, const char *tenant, const char *id, struct err *e)
{
	struct store_tx t;
	int r = store_write(s, false, &t, e);

	if (r < 0)
		return r;
	r = store_run(
	    &t, STMT_SESSION_END, e, "tti", id, tenant, store_now_ms());
	if (r == 0)
		r = not_found(e);
	r = store_end(&t, r, e);
	return r < 0 ? r : 0;
}

int store_session_delete(struct store *s, const char *id, struct err *e)
{
	return store_run_alone(s, STMT_SESSION_DELETE, e, "t", id);
}

int store_sessions_ending(
    struct store *s, struct store_id *ret, size_t max, struct err *e)
{
	int64_t now = store_now_ms();
	int r = store_ask_alone(s, STMT_SESSION_EXPIRED, NULL, e, "i", now);

	if (r > 0)
		r = store_run_alone(s, STMT_SESSION_END_EXPIRED, e, "i", now);
	if (r < 0)
		return r;
	return store_list_ids(s, STMT_SESSION_ENDING, ret, max, e);
}

int store_session_count(
    struct store *s, const char *tenant, uint64_t *ret, struct err *e)
{
	return store_count(
	    s, STMT_SESSION_COUNT, STMT_SESSION_COUNT_OF, tenant, ret, e);
}

int store_session_known(struct store *s, const char *id, struct err *e)
{
	return store_ask_alone(s, STMT_SESSION_KNOWN, NULL, e, "t", id);
}
