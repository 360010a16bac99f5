/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fcgi/exchange.h"
#include "lib/clock.h"
#include "lib/log.h"

/* The deepest a request goes is a few small frames and the parsed members of
 * /execute (10 KiB); sanitizers blow frames up. */
#ifdef ISOBOX_SANITIZED
#define STACK_SIZE (2u << 20)
#else
#define STACK_SIZE (256u * 1024)
#endif

struct worker {
	struct pool *pool;
	pthread_t thread;
	struct conn_io *io;
	struct exchange exchange;
};

/* How long a request with a large body may wait for its thread. */
#define LARGE_WAIT_MS 10000u

/* Connections by `next`, the oldest first. */
struct queue {
	struct conn *first;
	struct conn *last;
};

struct pool {
	pthread_mutex_t lock; /* of all up to `stop` */
	pthread_cond_t filled;
	struct queue small;
	struct queue large;
	unsigned large_serving;
	unsigned large_max;
	unsigned idle; /* threads that wait for something to do */
	struct conn *back;
	bool stop;
	atomic_size_t count;
	int event_fd;
	struct worker *workers;
	unsigned worker_count; /* with a thread */
	struct worker here; /* of pool_serve_here() */
};

static void append(struct queue *q, struct conn *c)
{
	c->next = NULL;
	if (q->first == NULL)
		q->first = c;
	else
		q->last->next = c;
	q->last = c;
}

static struct conn *shift(struct queue *q)
{
	struct conn *c = q->first;

	q->first = c->next;
	c->next = NULL;
	return c;
}

/* The queue whose turn it is, NULL: nothing can be served now. Large ones come
 * first: the others have most threads for themselves. */
static struct queue *next_queue(struct pool *p)
{
	if (p->large.first != NULL && p->large_serving < p->large_max)
		return &p->large;
	return p->small.first != NULL ? &p->small : NULL;
}

static struct conn *pop(struct pool *p)
{
	struct queue *q;
	struct conn *c = NULL;

	(void)pthread_mutex_lock(&p->lock);
	p->idle++;
	while ((q = next_queue(p)) == NULL && !p->stop)
		(void)pthread_cond_wait(&p->filled, &p->lock);
	p->idle--;
	if (q != NULL)
		c = shift(q);
	if (q == &p->large)
		p->large_serving++;
	(void)pthread_mutex_unlock(&p->lock);
	return c;
}

void pool_push(struct pool *p, struct conn *c)
{
	atomic_fetch_add(&p->count, 1);
	c->since_ms = clock_ms();
	(void)pthread_mutex_lock(&p->lock);
	append(c->large ? &p->large : &p->small, c);
	(void)pthread_mutex_unlock(&p->lock);
	(void)pthread_cond_signal(&p->filled);
}

/* A thread is free for the next large one. */
static void end_large(struct pool *p)
{
	(void)pthread_mutex_lock(&p->lock);
	p->large_serving--;
	(void)pthread_mutex_unlock(&p->lock);
	(void)pthread_cond_signal(&p->filled);
}

static void give_back(struct pool *p, struct conn *c)
{
	const uint64_t one = 1;

	(void)pthread_mutex_lock(&p->lock);
	c->next = p->back;
	p->back = c;
	(void)pthread_mutex_unlock(&p->lock);
	/* Fails only at 2^64 - 1 wakes not taken. */
	if (write(p->event_fd, &one, sizeof(one)) < 0)
		log_error("eventfd: %s", strerror(errno));
}

/* Why not to look at the request; 0: it is to be served. */
static int refusal(const struct conn *c, struct err *e)
{
	if (c->in.refused != NULL)
		return err_set(
		    e, ERR_INVALID_REQUEST, EMSGSIZE, "%s", c->in.refused);
	if (c->large && clock_ms() - c->since_ms > LARGE_WAIT_MS)
		return err_set(e, ERR_CAPACITY, EAGAIN,
		    "too many uploads at the same time");
	return 0;
}

/* Serves the request; true when the connection goes on. */
static bool serve(struct worker *w, struct conn *c)
{
	struct conn_request r;
	struct err refused;
	struct err e;

	if (conn_begin(w->io, c, &r, &e) < 0) {
		log_error("%s", e.msg);
		return false;
	}
	exchange_serve(&w->exchange, r.out, r.envp, r.body,
	    refusal(c, &refused) < 0 ? &refused : NULL);
	return conn_end(w->io);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct conn *c;

	while ((c = pop(w->pool)) != NULL) {
		bool large = c->large;
		bool goes_on = serve(w, c);

		if (large)
			end_large(w->pool);
		if (goes_on) {
			give_back(w->pool, c);
			continue;
		}
		conn_free(c);
		atomic_fetch_sub(&w->pool->count, 1);
	}
	return NULL;
}

bool pool_is_idle(struct pool *p)
{
	bool idle;

	(void)pthread_mutex_lock(&p->lock);
	idle = p->idle > 0 && p->small.first == NULL;
	(void)pthread_mutex_unlock(&p->lock);
	return idle;
}

bool pool_serve_here(struct pool *p, struct conn *c)
{
	if (serve(&p->here, c))
		return true;
	conn_free(c);
	return false;
}

int pool_fd(const struct pool *p)
{
	return p->event_fd;
}

struct conn *pool_take(struct pool *p)
{
	struct conn *list;
	uint64_t wakes;

	if (read(p->event_fd, &wakes, sizeof(wakes)) < 0 && errno != EAGAIN)
		log_error("eventfd: %s", strerror(errno));
	(void)pthread_mutex_lock(&p->lock);
	list = p->back;
	p->back = NULL;
	(void)pthread_mutex_unlock(&p->lock);
	for (struct conn *c = list; c != NULL; c = c->next)
		atomic_fetch_sub(&p->count, 1);
	return list;
}

size_t pool_count(struct pool *p)
{
	return atomic_load(&p->count);
}

static int init_worker(
    struct pool *p, struct worker *w, struct app *app, struct err *e)
{
	w->pool = p;
	exchange_init(&w->exchange, app);
	return conn_io_new(&w->io, e);
}

static int start_workers(
    struct pool *p, unsigned threads, struct app *app, struct err *e)
{
	pthread_attr_t attr;
	int r = pthread_attr_init(&attr);

	if (r != 0)
		return err_sys(e, r, "pthread_attr_init");
	(void)pthread_attr_setstacksize(&attr, STACK_SIZE);
	while (r == 0 && p->worker_count < threads) {
		struct worker *w = &p->workers[p->worker_count];

		r = init_worker(p, w, app, e);
		if (r < 0)
			break;
		r = pthread_create(&w->thread, &attr, work, w);
		if (r == 0)
			p->worker_count++;
		else
			conn_io_free(w->io);
	}
	(void)pthread_attr_destroy(&attr);
	if (r > 0)
		return err_sys(
		    e, r, "cannot start thread %u", p->worker_count + 1);
	return r;
}

int pool_start(
    struct app *app, unsigned threads, struct pool **ret, struct err *e)
{
	struct pool *p = calloc(1, sizeof(*p));
	int r;

	if (p == NULL)
		return err_sys(e, ENOMEM, "the threads");
	(void)pthread_mutex_init(&p->lock, NULL);
	(void)pthread_cond_init(&p->filled, NULL);
	p->large_max = threads / 4 > 0 ? threads / 4 : 1;
	p->workers = calloc(threads, sizeof(*p->workers));
	p->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->workers == NULL || p->event_fd < 0)
		r = err_sys(e, errno, "the threads");
	else if ((r = init_worker(p, &p->here, app, e)) == 0) {
		p->here.exchange.in_loop = true;
		r = start_workers(p, threads, app, e);
	}
	if (r < 0) {
		pool_stop(p);
		return r;
	}
	*ret = p;
	return 0;
}

void pool_stop(struct pool *p)
{
	(void)pthread_mutex_lock(&p->lock);
	p->stop = true;
	(void)pthread_mutex_unlock(&p->lock);
	(void)pthread_cond_broadcast(&p->filled);
	for (unsigned i = 0; i < p->worker_count; i++) {
		struct worker *w = &p->workers[i];

		(void)pthread_join(w->thread, NULL);
		conn_io_free(w->io);
		exchange_done(&w->exchange);
	}
	if (p->here.io != NULL)
		conn_io_free(p->here.io);
	exchange_done(&p->here.exchange);
	if (p->event_fd >= 0)
		(void)close(p->event_fd);
	(void)pthread_cond_destroy(&p->filled);
	(void)pthread_mutex_destroy(&p->lock);
	free(p->workers);
	free(p);
}
