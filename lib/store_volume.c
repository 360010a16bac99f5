/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sqlite3.h>
#include <string.h>

#include "lib/store_db.h"

static int not_found(struct err *e)
{
	return err_set(e, ERR_VOLUME_NOT_FOUND, ENOENT, "%s", "");
}

static int insert(struct store_tx *t, const struct store_volume *n,
    uint32_t max, struct err *e)
{
	int64_t count = 0;
	int r = store_ask(t, STMT_VOLUME_COUNT_OF, &count, e, "t", n->tenant);

	if (r < 0)
		return r;
	if (count >= max)
		return err_set(e, ERR_TOO_MANY_VOLUMES, EAGAIN,
		    "there are %u volumes already", max);
	return store_run(t, STMT_VOLUME_INSERT, e, "ttti", n->id, n->tenant,
	    n->name, n->created_ms);
}

int store_volume_create(struct store *s, const struct store_volume *new,
    uint32_t max, struct err *e)
{
	struct store_tx t;
	int r = store_write(s, false, &t, e);

	if (r < 0)
		return r;
	r = store_end(&t, insert(&t, new, max, e), e);
	return r < 0 ? r : 0;
}

static void take_row(sqlite3_stmt *st, struct store_volume *ret)
{
	memset(ret, 0, sizeof(*ret));
	store_text(st, 0, ret->id, sizeof(ret->id));
	store_text(st, 1, ret->tenant, sizeof(ret->tenant));
	store_text(st, 2, ret->name, sizeof(ret->name));
	ret->created_ms = sqlite3_column_int64(st, 3);
	store_text(st, 4, ret->holder, sizeof(ret->holder));
}

int store_volume_find(struct store_tx *t, const char *tenant, const char *id,
    struct store_volume *ret, struct err *e)
{
	sqlite3_stmt *st = store_bind(t, STMT_VOLUME_GET, e, "tt", id, tenant);
	int r;

	if (st == NULL)
		return -e->code;
	r = store_step(t, st, e);
	if (r > 0)
		take_row(st, ret);
	store_done(st);
	return r == 0 ? not_found(e) : r;
}

int store_volume_get(struct store *s, const char *tenant, const char *id,
    struct store_volume *ret, struct err *e)
{
	struct store_tx t;
	int r = store_read(s, &t, e);

	if (r < 0)
		return r;
	r = store_end(&t, store_volume_find(&t, tenant, id, ret, e), e);
	return r < 0 ? r : 0;
}

static int list(struct store_tx *t, const char *tenant, store_volume_each *each,
    void *arg, struct err *e)
{
	sqlite3_stmt *st = store_bind(t, STMT_VOLUME_LIST, e, "t", tenant);
	int r;

	if (st == NULL)
		return -e->code;
	while ((r = store_step(t, st, e)) > 0) {
		struct store_volume v;

		take_row(st, &v);
		r = each(arg, &v, e);
		if (r < 0)
			break;
	}
	store_done(st);
	return r;
}

int store_volume_list(struct store *s, const char *tenant,
    store_volume_each *each, void *arg, struct err *e)
{
	struct store_tx t;
	int r = store_read(s, &t, e);

	return r < 0 ? r : store_end(&t, list(&t, tenant, each, arg, e), e);
}

static int end(
    struct store_tx *t, const char *tenant, const char *id, struct err *e)
{
	struct store_volume v = {0};
	int r = store_volume_find(t, tenant, id, &v, e);

	if (r < 0)
		return r;
	if (v.holder[0] != '\0')
		return err_set(
		    e, ERR_VOLUME_BUSY, EBUSY, "a session holds the volume");
	return store_run(t, STMT_VOLUME_END, e, "ti", id, store_now_ms());
}

int store_volume_end(
    struct store *s, const char *tenant, const char *id, struct err *e)
{
	struct store_tx t;
	int r = store_write(s, false, &t, e);

	if (r < 0)
		return r;
	r = store_end(&t, end(&t, tenant, id, e), e);
	return r < 0 ? r : 0;
}

int store_volume_delete(struct store *s, const char *id, struct err *e)
{
	return store_run_alone(s, STMT_VOLUME_DELETE, e, "t", id);
}

int store_volumes_ending(
    struct store *s, struct store_id *ret, size_t max, struct err *e)
{
	return store_list_ids(s, STMT_VOLUME_ENDING, ret, max, e);
}

int store_volume_count(
    struct store *s, const char *tenant, uint64_t *ret, struct err *e)
{
	return store_count(
	    s, STMT_VOLUME_COUNT, STMT_VOLUME_COUNT_OF, tenant, ret, e);
}

int store_volume_known(struct store *s, const char *id, struct err *e)
{
	return store_ask_alone(s, STMT_VOLUME_KNOWN, NULL, e, "t", id);
}
