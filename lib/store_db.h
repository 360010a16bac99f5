/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_STORE_DB_H
#define ISOBOX_STORE_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/store.h"
#include "lib/store_sql.h"

/* Between the parts of the store only: transactions and statements. */

struct sqlite3;
struct sqlite3_stmt;

/* A connection to the file, with its prepared statements; one thread's at a
 * time. */
struct store_conn {
	struct sqlite3 *db;
	struct sqlite3_stmt *stmts[STMT_COUNT];
	struct store_conn *next;
	int wal_pages; /* in the log after the last commit */
	int wal_next; /* when to begin it anew */
	unsigned busy_ms; /* how long to wait for another process */
	uint64_t busy_until_us; /* the end of the wait under way */
	bool relaxed; /* PRAGMA synchronous is NORMAL, not FULL */
	bool broken; /* not to be used again */
};

/* Opens the file, which is there, in the mode that all of ours are in. NULL on
 * failure. */
struct store_conn *store_conn_open(const char *path, struct err *e);
void store_conn_close(struct store_conn *c);

/* Brings a new or old file to the schema of today; nobody else does so now. */
int store_conn_migrate(struct store_conn *c, struct err *e);

/* Bounds the log, behind a commit. What fails now works another time. */
void store_conn_checkpoint(struct store_conn *c);

/* Sets *e from the connection's last error, whose code is rc. */
int store_conn_fail(struct store_conn *c, int rc, struct err *e);

/* A transaction. store_read() is one statement's, or several that need no
 * common view. */
struct store_tx {
	struct store *store;
	struct store_conn *conn;
	bool write;
};

int store_read(struct store *s, struct store_tx *t, struct err *e);

/* One writer at a time. relaxed: a power failure may forget it. */
int store_write(
    struct store *s, bool relaxed, struct store_tx *t, struct err *e);

/* Ends either. Commits when r >= 0, and returns r or what the commit said; else
 * nothing has happened, and r is returned. */
int store_end(struct store_tx *t, int r, struct err *e);

/*
 * A statement with its parameters in `kinds`: t text (const char *, NULL is
 * NULL), b blob (const void *, size_t), i integer (int64_t). What they point to
 * must live until store_done(). NULL on failure.
 */
struct sqlite3_stmt *store_bind(struct store_tx *t, enum store_stmt stmt,
    struct err *e, const char *kinds, ...);

/* 1 a row, 0 the end. */
int store_step(struct store_tx *t, struct sqlite3_stmt *st, struct err *e);
void store_done(struct sqlite3_stmt *st);

/* A whole statement: whether there was a row, its first column in *ret (which
 * may be NULL). */
int store_ask(struct store_tx *t, enum store_stmt stmt, int64_t *ret,
    struct err *e, const char *kinds, ...);

/* A whole statement that returns no row: how many rows it changed. */
int store_run(struct store_tx *t, enum store_stmt stmt, struct err *e,
    const char *kinds, ...);

/* The same, each as a transaction of its own. */
int store_ask_alone(struct store *s, enum store_stmt stmt, int64_t *ret,
    struct err *e, const char *kinds, ...);
int store_run_alone(struct store *s, enum store_stmt stmt, struct err *e,
    const char *kinds, ...);

/* Up to max identifiers, of a statement whose parameter is that max. */
int store_list_ids(struct store *s, enum store_stmt stmt, struct store_id *ret,
    size_t max, struct err *e);

/* The number that all tells, or that of tells for a tenant. */
int store_count(struct store *s, enum store_stmt all, enum store_stmt of,
    const char *tenant, uint64_t *ret, struct err *e);

/* store_volume_get() within a transaction. */
int store_volume_find(struct store_tx *t, const char *tenant, const char *id,
    struct store_volume *ret, struct err *e);

/* A text column, cut to the room there is: what we wrote fits. */
void store_text(struct sqlite3_stmt *st, int column, char *ret, size_t size);

#endif
