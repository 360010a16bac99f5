/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/store_db.h"

/*
 * One connection. The file is in WAL mode: readers see what was committed when
 * they began and wait for nobody, a writer appends to the log, and a commit is
 * one fsync of the log (synchronous=FULL). A process that dies leaves at most
 * an end of the log without a commit, which nobody reads.
 */

/* How long another process may hold the write lock: many commits. */
#define BUSY_MAX_MS 10000u
/* SQLite's own waits grow to 100 ms, in which a busy process commits thirty
 * times: short ones find the gap between two. */
#define BUSY_STEP_US 700u

/*
 * The log begins anew when all of it has been moved into the file and nobody
 * reads from it. With several busy processes that moment does not come by itself:
 * measured, moving what can be moved after each commit let the log grow beyond
 * 50 MiB within seconds. So from so many pages of 4 KiB on, a commit keeps the
 * other writers out for some milliseconds. It does not wait long for a reader
 * that has its time, a backup, and tries again as many pages later.
 */
#define WAL_PAGES 1000
#define WAL_WAIT_MS 1000u

/* foreign_keys and the like are a connection's own; temp files would be outside
 * of what Landlock allows; freed pages hold clients' secrets. */
static const char settings[] = "PRAGMA synchronous = FULL;"
			       "PRAGMA foreign_keys = ON;"
			       "PRAGMA temp_store = MEMORY;"
			       "PRAGMA secure_delete = ON;"
			       "PRAGMA cell_size_check = ON;"
			       "PRAGMA cache_size = -1024;"
			       "PRAGMA journal_size_limit = 33554432;";

int store_conn_fail(struct store_conn *c, int rc, struct err *e)
{
	const char *file = sqlite3_db_filename(c->db, "main");
	int code = sqlite3_system_errno(c->db);

	switch (rc & 0xff) {
	case SQLITE_FULL:
		return err_set(e, ERR_STORAGE_FULL, ENOSPC, "the disk is full");
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_set(e, ERR_STORAGE_FAILED, EBUSY,
		    "the store is locked by another process");
	case SQLITE_NOMEM:
		c->broken = true;
		return err_sys(e, ENOMEM, "the store");
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		c->broken = true;
		return err_set(e, ERR_STORAGE_FAILED, EUCLEAN,
		    "the store is damaged (%s)", sqlite3_errstr(rc));
	case SQLITE_READONLY:
	case SQLITE_PERM:
		c->broken = true;
		return err_set(e, ERR_STORAGE_FAILED, EROFS,
		    "the store cannot be written to");
	case SQLITE_CANTOPEN:
		c->broken = true;
		/* The last of what SQLite tried need not be the reason. */
		if (file != NULL && access(file, W_OK) != 0)
			code = errno;
		return err_set(e, ERR_STORAGE_FAILED, code > 0 ? code : EACCES,
		    "the store cannot be opened: %s",
		    code > 0 ? strerror(code) : sqlite3_errstr(rc));
	default:
		break;
	}
	c->broken = true;
	if (code == ENOSPC || code == EDQUOT)
		return err_set(e, ERR_STORAGE_FULL, code, "the disk is full");
	return err_set(e, ERR_STORAGE_FAILED, code > 0 ? code : EIO,
	    "the store failed: %s", sqlite3_errmsg(c->db));
}

/* SQLite counts the calls of one wait, from 0. */
static int on_busy(void *arg, int count)
{
	struct store_conn *c = arg;
	const uint64_t now_us = clock_us();

	if (count == 0)
		c->busy_until_us = now_us + c->busy_ms * UINT64_C(1000);
	if (now_us >= c->busy_until_us)
		return 0;
	(void)usleep(BUSY_STEP_US);
	return 1;
}

static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct store_conn *c = arg;

	(void)db;
	(void)name;
	c->wal_pages = pages;
	return SQLITE_OK;
}

static int exec(struct store_conn *c, const char *sql, struct err *e)
{
	int rc = sqlite3_exec(c->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : store_conn_fail(c, rc, e);
}

static int set_up(struct store_conn *c, struct err *e)
{
	(void)sqlite3_extended_result_codes(c->db, 1);
	c->busy_ms = BUSY_MAX_MS;
	c->wal_next = WAL_PAGES;
	(void)sqlite3_busy_handler(c->db, on_busy, c);
	/* Instead of SQLite's own, which is that of wal_autocheckpoint: to set
	 * that one, even to 0, would take this one away. */
	(void)sqlite3_wal_hook(c->db, on_commit, c);
	(void)sqlite3_db_config(c->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	(void)sqlite3_db_config(c->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	(void)sqlite3_limit(c->db, SQLITE_LIMIT_ATTACHED, 0);
	return exec(c, settings, e);
}

struct store_conn *store_conn_open(const char *path, struct err *e)
{
	struct store_conn *c = calloc(1, sizeof(*c));
	int rc;

	if (c == NULL) {
		(void)err_sys(e, ENOMEM, "the store");
		return NULL;
	}
	rc = sqlite3_open_v2(path, &c->db,
	    SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
		SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOFOLLOW,
	    NULL);
	if (rc != SQLITE_OK)
		(void)store_conn_fail(c, rc, e);
	if (rc == SQLITE_OK && set_up(c, e) == 0)
		return c;
	store_conn_close(c);
	return NULL;
}

void store_conn_close(struct store_conn *c)
{
	for (size_t i = 0; i < STMT_COUNT; i++)
		(void)sqlite3_finalize(c->stmts[i]);
	(void)sqlite3_close(c->db);
	free(c);
}

/* The number that a pragma tells. */
static int ask(
    struct store_conn *c, const char *sql, int64_t *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(c->db, sql, -1, &st, NULL);
	int r = 0;

	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(st, 0);
	else
		r = store_conn_fail(c, rc, e);
	(void)sqlite3_finalize(st);
	return r;
}

/* The answer is the mode that it is in now. */
static int set_wal(struct store_conn *c, struct err *e)
{
	sqlite3_stmt *st = NULL;
	const char *mode = NULL;
	int r = 0;
	int rc = sqlite3_prepare_v2(
	    c->db, "PRAGMA journal_mode = WAL", -1, &st, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(st);
	if (rc == SQLITE_ROW)
		mode = (const char *)sqlite3_column_text(st, 0);
	if (rc != SQLITE_ROW)
		r = store_conn_fail(c, rc, e);
	else if (mode == NULL || strcmp(mode, "wal") != 0)
		r = err_set(e, ERR_STORAGE_FAILED, ENOTSUP,
		    "the file system cannot share memory, which the store "
		    "needs");
	(void)sqlite3_finalize(st);
	return r;
}

/* One step, whole or not at all: the version is part of the transaction. */
static int migrate_one(struct store_conn *c, unsigned from, struct err *e)
{
	char version[64];
	int r;

	(void)sqlite3_snprintf(sizeof(version), version,
	    "PRAGMA user_version = %u; COMMIT", from + 1);
	if ((r = exec(c, "BEGIN IMMEDIATE", e)) < 0)
		return r;
	if ((r = exec(c, store_migrations[from], e)) < 0 ||
	    (r = exec(c, version, e)) < 0)
		(void)sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

int store_conn_migrate(struct store_conn *c, struct err *e)
{
	int64_t version, application, tables;
	int r;

	if ((r = ask(c, "PRAGMA user_version", &version, e)) < 0 ||
	    (r = ask(c, "PRAGMA application_id", &application, e)) < 0 ||
	    (r = ask(c, "SELECT count(*) FROM sqlite_schema", &tables, e)) < 0)
		return r;
	if (version == 0 ? application != 0 || tables != 0
			 : application != STORE_APPLICATION_ID)
		return err_set(e, ERR_STORAGE_FAILED, EINVAL,
		    "it is a database of something else");
	if (version < 0 || version > store_version)
		return err_set(e, ERR_STORAGE_FAILED, EINVAL,
		    "the store was written by a newer isobox (version %lld of "
		    "its schema, this one knows %u)",
		    (long long)version, store_version);
	if ((r = set_wal(c, e)) < 0)
		return r;
	for (unsigned v = (unsigned)version; r == 0 && v < store_version; v++)
		r = migrate_one(c, v, e);
	return r;
}

void store_conn_checkpoint(struct store_conn *c)
{
	if (c->wal_pages < WAL_PAGES) {
		c->wal_next = WAL_PAGES;
		return;
	}
	if (c->wal_pages < c->wal_next)
		return;
	c->busy_ms = WAL_WAIT_MS;
	if (sqlite3_wal_checkpoint_v2(c->db, NULL, SQLITE_CHECKPOINT_RESTART,
		NULL, NULL) == SQLITE_OK)
		c->wal_next = WAL_PAGES;
	else
		c->wal_next = c->wal_pages + WAL_PAGES;
	c->busy_ms = BUSY_MAX_MS;
}
