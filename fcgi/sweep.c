/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fcgi/wsclient.h"
#include "lib/cleanup.h"
#include "lib/log.h"

#define LOCK_FILE "sweep.lock"

/* Removed in one go; what is left has its turn the next time. */
#define BATCH 256u
#define VALUES_MAX 10000u

/* The deepest is a batch of identifiers and a client's frames. */
#define STACK_SIZE (256u * 1024)

static struct ws_call call_for(
    const struct app *app, enum ws_kind kind, const char *id)
{
	return (struct ws_call){
	    .socket = app->config->runner_socket,
	    .request_id = "sweep",
	    .kind = kind,
	    .id = id,
	};
}

/* A session or a volume that has ended: its directory, then its record. */
static int finish(struct app *app, enum ws_kind kind, const char *id)
{
	const struct ws_call call = call_for(app, kind, id);
	struct err e;
	int r = ws_do(WS_REMOVE, &call, NULL, &e);

	if (r >= 0)
		r = kind == WS_SESSION
			? store_session_delete(app->store, id, &e)
			: store_volume_delete(app->store, id, &e);
	if (r < 0)
		log_warn("sweep: %.8s...: %s", id, e.msg);
	return r;
}

/* A failure ends it, for the runner may be away. If it is that one's alone, the
 * others do not wait for ever: each time another one is the first. */
static void finish_all(
    struct app *app, enum ws_kind kind, const atomic_bool *stop)
{
	struct store_id ids[BATCH];
	struct err e;
	int n = kind == WS_SESSION
		    ? store_sessions_ending(app->store, ids, BATCH, &e)
		    : store_volumes_ending(app->store, ids, BATCH, &e);
	const unsigned first = n > 0 ? randombytes_uniform((unsigned)n) : 0;

	if (n < 0)
		log_warn("sweep: %s", e.msg);
	for (int i = 0; i < n && !atomic_load(stop); i++) {
		if (finish(app, kind,
			ids[(first + (unsigned)i) % (unsigned)n].id) < 0)
			return;
		if (kind == WS_SESSION)
			metrics_count(
			    &app->metrics, METRIC_SESSIONS_EXPIRED, 1);
	}
}

/*
 * A workspace that no record knows. A session's is garbage: its record was there
 * before it, and goes after it, so only a lost store leaves one behind, and with
 * that store its token was lost. What is in a volume somebody may still want.
 */
static void take_stray(struct app *app, enum ws_kind kind, const char *id)
{
	const struct ws_call call = call_for(app, kind, id);
	struct err e;

	if (kind == WS_VOLUME) {
		log_warn("the volume %s is in no record; remove its folder if "
			 "nobody needs it",
		    id);
		return;
	}
	log_warn("sweep: a workspace without a session is removed");
	if (ws_do(WS_REMOVE, &call, NULL, &e) < 0)
		log_warn("sweep: %.8s...: %s", id, e.msg);
}

static int check_ids(struct app *app, enum ws_kind kind, const uint8_t *payload,
    size_t len, struct err *e)
{
	struct reader in = {payload, len, false};
	char id[LIMIT_ID + 1];
	struct blob next;
	int r;

	while ((r = ws_id_next(&in, &next, e)) > 0) {
		memcpy(id, next.data, next.len);
		id[next.len] = '\0';
		r = kind == WS_SESSION ? store_session_known(app->store, id, e)
				       : store_volume_known(app->store, id, e);
		if (r < 0)
			return r;
		if (r == 0)
			take_stray(app, kind, id);
	}
	return r;
}

static void reconcile(struct app *app, enum ws_kind kind)
{
	const struct ws_call call = call_for(app, kind, NULL);
	enum proto_type type;
	const uint8_t *payload;
	struct ws_client c;
	struct err e;
	size_t len;
	int r = ws_ask(&c, WS_LIST, &call, &e);

	while (r >= 0 && (r = ws_next(&c, &type, &payload, &len, &e)) > 0)
		r = type == PROTO_WS_IDS
			? check_ids(app, kind, payload, len, &e)
			: ws_misbehaves(&e, "no identifiers");
	if (r < 0)
		log_warn("sweep: %s", e.msg);
	ws_close(&c);
}

/* Whether it was done a moment ago, by whoever. A file that is new was not. */
static bool is_due(int fd)
{
	struct timespec now = {0};
	struct stat st;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return fstat(fd, &st) < 0 || st.st_size == 0 ||
	       now.tv_sec < st.st_mtim.tv_sec ||
	       now.tv_sec - st.st_mtim.tv_sec >= SWEEP_EVERY_SEC;
}

static int open_lock(const struct app *app)
{
	char path[PATH_MAX];
	int n = snprintf(
	    path, sizeof(path), "%s/" LOCK_FILE, app->config->state_dir);

	if (n < 0 || (size_t)n >= sizeof(path))
		return -1;
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void sweep_if_due(struct app *app, const atomic_bool *stop)
{
	cleanup_fd int fd = open_lock(app);
	struct err e;

	if (fd < 0) {
		if (errno == ENOENT) /* no state is kept */
			return;
		log_warn("sweep: %s/" LOCK_FILE ": %s", app->config->state_dir,
		    strerror(errno));
		return;
	}
	if (!is_due(fd) || flock(fd, LOCK_EX | LOCK_NB) < 0 || !is_due(fd))
		return;
	if (pwrite(fd, "\n", 1, 0) != 1) /* and so its time is now */
		log_warn("sweep: " LOCK_FILE ": %s", strerror(errno));
	finish_all(app, WS_SESSION, stop);
	finish_all(app, WS_VOLUME, stop);
	if (store_memory_sweep(app->store, VALUES_MAX, &e) < 0)
		log_warn("sweep: %s", e.msg);
	if (!atomic_load(stop))
		reconcile(app, WS_SESSION);
}

struct sweeper {
	struct app *app;
	pthread_t thread;
	pthread_mutex_t lock; /* of changes of stop */
	pthread_cond_t stopped;
	atomic_bool stop;
};

/* Until the next time, or the end: false. */
static bool wait(struct sweeper *s)
{
	struct timespec until;
	bool stop;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += SWEEP_EVERY_SEC;
	(void)pthread_mutex_lock(&s->lock);
	while (!atomic_load(&s->stop) && pthread_cond_timedwait(&s->stopped,
					     &s->lock, &until) != ETIMEDOUT)
		;
	stop = atomic_load(&s->stop);
	(void)pthread_mutex_unlock(&s->lock);
	return !stop;
}

static void *run(void *arg)
{
	struct sweeper *s = arg;

	reconcile(s->app, WS_VOLUME); /* only to tell, so only at the start */
	do
		sweep_if_due(s->app, &s->stop);
	while (wait(s));
	return NULL;
}

static int start_thread(struct sweeper *s)
{
	pthread_condattr_t clock;
	pthread_attr_t attr;
	int r;

	(void)pthread_condattr_init(&clock);
	(void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&s->stopped, &clock);
	(void)pthread_condattr_destroy(&clock);
	(void)pthread_mutex_init(&s->lock, NULL);
	r = pthread_attr_init(&attr);
	if (r != 0)
		return r;
	(void)pthread_attr_setstacksize(&attr, STACK_SIZE);
	r = pthread_create(&s->thread, &attr, run, s);
	(void)pthread_attr_destroy(&attr);
	return r;
}

int sweeper_start(struct app *app, struct sweeper **ret, struct err *e)
{
	struct sweeper *s = calloc(1, sizeof(*s));
	int r;

	if (s == NULL)
		return err_sys(e, ENOMEM, "the sweep");
	s->app = app;
	r = start_thread(s);
	if (r != 0) {
		free(s);
		return err_sys(e, r, "cannot start the sweep");
	}
	*ret = s;
	return 0;
}

void sweeper_stop(struct sweeper *s)
{
	if (s == NULL)
		return;
	(void)pthread_mutex_lock(&s->lock);
	atomic_store(&s->stop, true);
	(void)pthread_mutex_unlock(&s->lock);
	(void)pthread_cond_signal(&s->stopped);
	(void)pthread_join(s->thread, NULL);
	(void)pthread_cond_destroy(&s->stopped);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}
