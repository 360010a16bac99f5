/* SPDX-License-Identifier: Apache-2.0 */
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/store_db.h"

static int prepare_stmt(
    struct store_conn *c, enum store_stmt stmt, struct err *e)
{
	int rc;

	if (c->stmts[stmt] != NULL)
		return 0;
	rc = sqlite3_prepare_v3(c->db, store_sql[stmt], -1,
	    SQLITE_PREPARE_PERSISTENT, &c->stmts[stmt], NULL);
	return rc == SQLITE_OK ? 0 : store_conn_fail(c, rc, e);
}

static int bind_all(sqlite3_stmt *st, const char *kinds, va_list ap)
{
	int rc = SQLITE_OK;

	for (int i = 1; rc == SQLITE_OK && *kinds != '\0'; kinds++, i++) {
		if (*kinds == 'i') {
			rc = sqlite3_bind_int64(st, i, va_arg(ap, int64_t));
		} else if (*kinds == 't') {
			rc = sqlite3_bind_text(
			    st, i, va_arg(ap, const char *), -1, SQLITE_STATIC);
		} else {
			const void *data = va_arg(ap, const void *);
			size_t len = va_arg(ap, size_t);

			/* Of no address it would make a NULL. */
			rc = sqlite3_bind_blob64(
			    st, i, len > 0 ? data : "", len, SQLITE_STATIC);
		}
	}
	return rc;
}

static sqlite3_stmt *bind_list(struct store_tx *t, enum store_stmt stmt,
    struct err *e, const char *kinds, va_list ap)
{
	sqlite3_stmt *st;
	int rc;

	if (prepare_stmt(t->conn, stmt, e) < 0)
		return NULL;
	st = t->conn->stmts[stmt];
	rc = bind_all(st, kinds, ap);
	if (rc == SQLITE_OK)
		return st;
	(void)store_conn_fail(t->conn, rc, e);
	store_done(st);
	return NULL;
}

sqlite3_stmt *store_bind(struct store_tx *t, enum store_stmt stmt,
    struct err *e, const char *kinds, ...)
{
	sqlite3_stmt *st;
	va_list ap;

	va_start(ap, kinds);
	st = bind_list(t, stmt, e, kinds, ap);
	va_end(ap);
	return st;
}

int store_step(struct store_tx *t, sqlite3_stmt *st, struct err *e)
{
	int rc = sqlite3_step(st);

	if (rc == SQLITE_ROW)
		return 1;
	return rc == SQLITE_DONE ? 0 : store_conn_fail(t->conn, rc, e);
}

void store_done(sqlite3_stmt *st)
{
	(void)sqlite3_reset(st);
	(void)sqlite3_clear_bindings(st);
}

static int ask_list(struct store_tx *t, enum store_stmt stmt, int64_t *ret,
    struct err *e, const char *kinds, va_list ap)
{
	sqlite3_stmt *st = bind_list(t, stmt, e, kinds, ap);
	int r;

	if (st == NULL)
		return -e->code;
	r = store_step(t, st, e);
	if (r > 0 && ret != NULL)
		*ret = sqlite3_column_int64(st, 0);
	store_done(st);
	return r;
}

static int run_list(struct store_tx *t, enum store_stmt stmt, struct err *e,
    const char *kinds, va_list ap)
{
	int r = ask_list(t, stmt, NULL, e, kinds, ap);

	return r < 0 ? r : sqlite3_changes(t->conn->db);
}

int store_ask(struct store_tx *t, enum store_stmt stmt, int64_t *ret,
    struct err *e, const char *kinds, ...)
{
	va_list ap;
	int r;

	va_start(ap, kinds);
	r = ask_list(t, stmt, ret, e, kinds, ap);
	va_end(ap);
	return r;
}

int store_run(struct store_tx *t, enum store_stmt stmt, struct err *e,
    const char *kinds, ...)
{
	va_list ap;
	int r;

	va_start(ap, kinds);
	r = run_list(t, stmt, e, kinds, ap);
	va_end(ap);
	return r;
}

int store_ask_alone(struct store *s, enum store_stmt stmt, int64_t *ret,
    struct err *e, const char *kinds, ...)
{
	struct store_tx t;
	va_list ap;
	int r = store_read(s, &t, e);

	if (r < 0)
		return r;
	va_start(ap, kinds);
	r = ask_list(&t, stmt, ret, e, kinds, ap);
	va_end(ap);
	return store_end(&t, r, e);
}

int store_run_alone(struct store *s, enum store_stmt stmt, struct err *e,
    const char *kinds, ...)
{
	struct store_tx t;
	va_list ap;
	int r = store_write(s, false, &t, e);

	if (r < 0)
		return r;
	va_start(ap, kinds);
	r = run_list(&t, stmt, e, kinds, ap);
	va_end(ap);
	return store_end(&t, r, e);
}

static int list_ids(struct store_tx *t, enum store_stmt stmt,
    struct store_id *ret, size_t max, struct err *e)
{
	sqlite3_stmt *st = store_bind(t, stmt, e, "i", (int64_t)max);
	int count = 0;
	int r;

	if (st == NULL)
		return -e->code;
	while ((r = store_step(t, st, e)) > 0) {
		store_text(st, 0, ret[count].id, sizeof(ret[count].id));
		count++;
	}
	store_done(st);
	return r < 0 ? r : count;
}

int store_list_ids(struct store *s, enum store_stmt stmt, struct store_id *ret,
    size_t max, struct err *e)
{
	struct store_tx t;
	int r = store_read(s, &t, e);

	return r < 0 ? r : store_end(&t, list_ids(&t, stmt, ret, max, e), e);
}

int store_count(struct store *s, enum store_stmt all, enum store_stmt of,
    const char *tenant, uint64_t *ret, struct err *e)
{
	int64_t n = 0;
	int r = tenant == NULL ? store_ask_alone(s, all, &n, e, "")
			       : store_ask_alone(s, of, &n, e, "t", tenant);

	if (r < 0)
		return r;
	*ret = (uint64_t)n;
	return 0;
}

void store_text(sqlite3_stmt *st, int column, char *ret, size_t size)
{
	const unsigned char *text = sqlite3_column_text(st, column);

	(void)snprintf(ret, size, "%s", text != NULL ? (const char *)text : "");
}
