/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/store_db.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/file.h"

#define FILE_NAME "isobox.db"

/* Reads take well under a millisecond, so a few connections serve all threads;
 * each holds up to a MiB of pages. */
#define CONNS_MAX 16u

/* How long a thread waits for its turn: as long as another process may hold the
 * lock, and not once more for each thread before it. */
#define WAIT_MAX_S 10

struct store {
	char dir[PATH_MAX];
	char path[PATH_MAX + sizeof(FILE_NAME) + 1]; /* once open */
	pthread_mutex_t open_lock;
	atomic_bool open;
	pthread_mutex_t write_lock; /* within this process */
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t freed;
	struct store_conn *idle;
	unsigned count;
};

int64_t store_now_ms(void)
{
	return clock_wall_ms();
}

static int init_locks(struct store *s)
{
	pthread_condattr_t attr;
	int r = pthread_condattr_init(&attr);

	if (r == 0)
		r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (r == 0)
		r = pthread_cond_init(&s->freed, &attr);
	if (r == 0)
		r = pthread_mutex_init(&s->open_lock, NULL);
	if (r == 0)
		r = pthread_mutex_init(&s->write_lock, NULL);
	if (r == 0)
		r = pthread_mutex_init(&s->lock, NULL);
	return r;
}

int store_new(const char *dir, struct store **ret, struct err *e)
{
	struct store *s;
	int r;

	if (strlen(dir) >= sizeof(s->dir))
		return err_sys(e, ENAMETOOLONG, "state_dir");
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return err_sys(e, ENOMEM, "the store");
	r = init_locks(s);
	if (r != 0) {
		free(s);
		return err_sys(e, r, "the store");
	}
	memcpy(s->dir, dir, strlen(dir) + 1);
	*ret = s;
	return 0;
}

void store_free(struct store *s)
{
	if (s == NULL)
		return;
	for (struct store_conn *c = s->idle, *next; c != NULL; c = next) {
		next = c->next;
		store_conn_close(c);
	}
	(void)pthread_cond_destroy(&s->freed);
	(void)pthread_mutex_destroy(&s->open_lock);
	(void)pthread_mutex_destroy(&s->write_lock);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

/* SQLite gives its two other files the mode of this one. It is made before
 * SQLite knows it: a descriptor of ours that is closed would take SQLite's locks
 * with it. */
static int make_file(const char *path, struct err *e)
{
	cleanup_fd int fd = open(
	    path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0 || errno == EEXIST)
		return 0;
	return err_set(e,
	    errno == ENOSPC ? ERR_STORAGE_FULL : ERR_STORAGE_FAILED, errno,
	    "the store cannot be made: %s", strerror(errno));
}

/* SQLite refuses a symbolic link anywhere in the path, and ours may have one. */
static int find_path(struct store *s, struct err *e)
{
	char real[PATH_MAX];

	if (realpath(s->dir, real) == NULL)
		return err_set(e, ERR_STORAGE_FAILED, errno,
		    "the state directory cannot be reached: %s",
		    strerror(errno));
	(void)snprintf(s->path, sizeof(s->path), "%s/" FILE_NAME, real);
	return 0;
}

static int prepare(struct store *s, struct err *e)
{
	cleanup_fd int lock = -1;
	struct store_conn *c;
	int r = find_path(s, e);

	if (r < 0)
		return r;
	lock = file_lock_dir(s->dir, e);
	if (lock < 0) {
		e->kind = ERR_STORAGE_FAILED;
		return lock;
	}
	if ((r = make_file(s->path, e)) < 0)
		return r;
	c = store_conn_open(s->path, e);
	if (c == NULL)
		return -e->code;
	r = store_conn_migrate(c, e);
	if (r < 0) {
		store_conn_close(c);
		return r;
	}
	s->idle = c;
	s->count = 1;
	return 0;
}

int store_open(struct store *s, struct err *e)
{
	int r = 0;

	if (atomic_load(&s->open))
		return 0;
	(void)pthread_mutex_lock(&s->open_lock);
	if (!atomic_load(&s->open))
		r = prepare(s, e);
	if (r == 0)
		atomic_store(&s->open, true);
	(void)pthread_mutex_unlock(&s->open_lock);
	return r;
}

static struct timespec wait_end(void)
{
	struct timespec t = {0};

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += WAIT_MAX_S;
	return t;
}

static int busy(struct err *e)
{
	return err_set(e, ERR_STORAGE_FAILED, EBUSY, "the store is busy");
}

/* A connection that lies idle, or the right to make one: then *ret is NULL. */
static int take_idle(struct store *s, struct store_conn **ret, struct err *e)
{
	const struct timespec end = wait_end();
	int r = 0;

	(void)pthread_mutex_lock(&s->lock);
	while (r == 0 && s->idle == NULL && s->count == CONNS_MAX)
		r = pthread_cond_timedwait(&s->freed, &s->lock, &end);
	*ret = s->idle;
	if (*ret != NULL) {
		s->idle = (*ret)->next;
		r = 0;
	} else if (r == 0) {
		s->count++;
	}
	(void)pthread_mutex_unlock(&s->lock);
	return r == 0 ? 0 : busy(e);
}

/* c NULL: there is one less. */
static void give_back(struct store *s, struct store_conn *c)
{
	if (c != NULL && c->broken) {
		store_conn_close(c);
		c = NULL;
	}
	(void)pthread_mutex_lock(&s->lock);
	if (c == NULL) {
		s->count--;
	} else {
		c->next = s->idle;
		s->idle = c;
	}
	(void)pthread_mutex_unlock(&s->lock);
	(void)pthread_cond_signal(&s->freed);
}

int store_read(struct store *s, struct store_tx *t, struct err *e)
{
	int r = store_open(s, e);

	if (r < 0)
		return r;
	*t = (struct store_tx){.store = s};
	if ((r = take_idle(s, &t->conn, e)) < 0)
		return r;
	if (t->conn == NULL)
		t->conn = store_conn_open(s->path, e);
	if (t->conn != NULL)
		return 0;
	give_back(s, NULL);
	return -e->code;
}

static int set_relaxed(struct store_conn *c, bool relaxed, struct err *e)
{
	int rc;

	if (c->relaxed == relaxed)
		return 0;
	rc = sqlite3_exec(c->db,
	    relaxed ? "PRAGMA synchronous = NORMAL"
		    : "PRAGMA synchronous = FULL",
	    NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		return store_conn_fail(c, rc, e);
	c->relaxed = relaxed;
	return 0;
}

int store_write(
    struct store *s, bool relaxed, struct store_tx *t, struct err *e)
{
	const struct timespec end = wait_end();
	int r;

	if (pthread_mutex_clocklock(&s->write_lock, CLOCK_MONOTONIC, &end) != 0)
		return busy(e);
	r = store_read(s, t, e);
	if (r < 0) {
		(void)pthread_mutex_unlock(&s->write_lock);
		return r;
	}
	if ((r = set_relaxed(t->conn, relaxed, e)) < 0 ||
	    (r = store_run(t, STMT_BEGIN, e, "")) < 0) {
		give_back(s, t->conn);
		(void)pthread_mutex_unlock(&s->write_lock);
		return r;
	}
	t->write = true;
	return 0;
}

/* The commit may fail and leave the transaction open. */
static int finish_write(struct store_tx *t, int r, struct err *e)
{
	struct err ignored;
	int ended = r;

	if (r >= 0)
		ended = store_run(t, STMT_COMMIT, e, "");
	if (ended < 0) {
		if (sqlite3_get_autocommit(t->conn->db) == 0 &&
		    store_run(t, STMT_ROLLBACK, &ignored, "") < 0)
			t->conn->broken = true;
		return ended;
	}
	store_conn_checkpoint(t->conn);
	return r;
}

int store_end(struct store_tx *t, int r, struct err *e)
{
	struct store *s = t->store;

	if (t->write)
		r = finish_write(t, r, e);
	give_back(s, t->conn);
	if (t->write)
		(void)pthread_mutex_unlock(&s->write_lock);
	return r;
}
