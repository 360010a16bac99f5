/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/server.h"

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fcgi/conn.h"
#include "fcgi/handlers.h"
#include "fcgi/pool.h"
#include "lib/clock.h"
#include "lib/log.h"

/*
 * The event loop. It owns the listening socket and every connection that waits
 * for bytes; a connection whose request is whole goes to the pool, and comes
 * back if the web server keeps it open. So neither an idle connection nor a slow
 * sender holds a thread. One with a large body goes there when its head is whole:
 * the body is read by the handler, and what that left comes back to be dropped.
 */

/* Front servers open one for each request. Each may hold a body: 256 MiB. */
#define CONN_MAX 1024u
#define IDLE_MAX_MS 300000u /* longer than fronts keep theirs */
#define REQUEST_MAX_MS 30000u /* for a request to arrive whole */
#define DRAIN_MAX_MS 30000u
#define PAUSE_MS 100u /* when descriptors are out */
#define TICK_MS 20 /* while something must be asked again */
#define SWEEP_MS 1000
#define TRIM_MS 5000
#define EVENTS 64
#define ACCEPTS 64 /* in a row, then others have their turn */

struct server {
	struct app *app;
	struct pool *pool;
	struct listener *listener;
	int epoll_fd;
	int signal_fd;
	struct conn waiting; /* head of a ring */
	size_t waiting_count;
	bool accepting; /* the listener is in the epoll set */
	uint64_t accept_again_ms;
	uint64_t swept_ms;
	bool served; /* since memory was given back */
	uint64_t trimmed_ms;
	bool draining;
	uint64_t drain_until_ms;
	bool cut; /* draining is over, done or not */
	uint8_t scratch[CONN_SCRATCH];
};

static bool is_idle(const struct conn *c)
{
	return c->in.state == RECORD_IDLE && c->in.header_len == 0;
}

static int watch(struct server *s, int fd, void *tag, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = tag};

	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

/* One event of a connection disarms it: most requests come whole, and are then
 * a worker's without another system call. */
static int arm(struct server *s, struct conn *c)
{
	struct epoll_event ev = {
	    .events = EPOLLIN | EPOLLONESHOT, .data.ptr = c};
	int op = c->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (epoll_ctl(s->epoll_fd, op, c->fd, &ev) < 0)
		return -errno;
	c->watched = true;
	return 0;
}

static void insert(struct server *s, struct conn *c)
{
	c->prev = s->waiting.prev;
	c->next = &s->waiting;
	c->prev->next = c;
	c->next->prev = c;
	s->waiting_count++;
}

static void take_out(struct server *s, struct conn *c)
{
	c->prev->next = c->next;
	c->next->prev = c->prev;
	s->waiting_count--;
}

/* Of one in the list. Closing takes it out of the epoll set. */
static void drop(struct server *s, struct conn *c)
{
	take_out(s, c);
	conn_free(c);
}

/* What the last request of a connection left of its body is being dropped: it
 * has its answer, and carries no other. */
static bool is_over(const struct server *s, const struct conn *c)
{
	return s->draining && (is_idle(c) || c->draining);
}

/* Whether the request is for /healthz: liveness is told also when all threads are
 * at work. */
static bool is_liveness(const struct conn *c)
{
	static const char path[] = "/healthz";
	size_t len;
	const uint8_t *uri = record_find(&c->in, "REQUEST_URI", &len);

	return uri != NULL && len >= sizeof(path) - 1 &&
	       memcmp(uri, path, sizeof(path) - 1) == 0 &&
	       (len == sizeof(path) - 1 || uri[sizeof(path) - 1] == '?') &&
	       c->in.body_len == 0 && record_is_whole(&c->in);
}

/* Nothing in it waits for anybody, if nobody needs to be asked. */
static bool belongs_here(const struct server *s, const struct conn *c)
{
	return is_liveness(c) && conn_has_room(c) &&
	       (health_is_known(s->app) || !pool_is_idle(s->pool));
}

/* What conn_read() or conn_next() said of a connection in no list. */
static void place(struct server *s, struct conn *c, int r, struct err *e)
{
	while (r > 0 && belongs_here(s, c)) {
		if (!pool_serve_here(s->pool, c))
			return;
		r = conn_next(c, e);
	}
	if (r > 0) {
		s->served = true;
		pool_push(s->pool, c);
		return;
	}
	if (r == 0 && !is_over(s, c) && arm(s, c) == 0) {
		c->since_ms = clock_ms();
		insert(s, c);
		return;
	}
	if (r < 0 && r != -ECONNRESET)
		log_info("connection closed: %s", e->msg);
	conn_free(c);
}

static void on_conn(struct server *s, struct conn *c)
{
	bool was_idle = is_idle(c);
	struct err e;
	int r = conn_read(c, s->scratch, &e);

	if (r == 0 && !is_over(s, c) && arm(s, c) == 0) {
		if (was_idle)
			c->since_ms = clock_ms();
		return;
	}
	take_out(s, c);
	place(s, c, r, &e);
}

static void on_returned(struct server *s)
{
	struct conn *next;

	for (struct conn *c = pool_take(s->pool); c != NULL; c = next) {
		struct err e;
		int r;

		next = c->next;
		r = conn_next(c, &e);
		place(s, c, r, &e);
	}
}

static void stop_accepting(struct server *s, uint64_t pause_ms)
{
	if (s->accepting)
		(void)epoll_ctl(
		    s->epoll_fd, EPOLL_CTL_DEL, s->listener->fd, NULL);
	s->accepting = false;
	s->accept_again_ms = clock_ms() + pause_ms;
}

static void start_accepting(struct server *s)
{
	/* Processes that share the socket are not all woken at once. */
	int r =
	    watch(s, s->listener->fd, s->listener, EPOLLIN | EPOLLEXCLUSIVE);

	s->accepting = r == 0;
	s->accept_again_ms = clock_ms() + PAUSE_MS;
}

/* Makes room for one connection: the list is in the order of age. */
static bool make_room(struct server *s)
{
	if (s->waiting_count + pool_count(s->pool) < CONN_MAX)
		return true;
	for (struct conn *c = s->waiting.next; c != &s->waiting; c = c->next) {
		if (!is_idle(c))
			continue;
		drop(s, c);
		return true;
	}
	return false;
}

static void on_new(struct server *s, int fd)
{
	struct conn *c;
	struct err e;
	int r;

	if (conn_new(fd, &c) < 0)
		return;
	r = conn_read(c, s->scratch, &e);
	place(s, c, r, &e);
}

static void on_accept(struct server *s)
{
	for (int i = 0; i < ACCEPTS && s->accepting; i++) {
		int fd;

		if (!make_room(s)) {
			stop_accepting(s, TICK_MS);
			return;
		}
		fd = accept4(s->listener->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0) {
			on_new(s, fd);
			continue;
		}
		if (errno == EAGAIN)
			return;
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		log_warn("accept: %s", strerror(errno));
		stop_accepting(s, PAUSE_MS);
	}
}

/* Who has connected, or sent something, has a request under way. */
static void start_draining(struct server *s)
{
	struct conn *next;

	on_accept(s);
	stop_accepting(s, 0);
	listen_close(s->listener);
	s->draining = true;
	s->drain_until_ms = clock_ms() + DRAIN_MAX_MS;
	for (struct conn *c = s->waiting.next; c != &s->waiting; c = next) {
		next = c->next;
		if (c->draining)
			drop(s, c);
		else if (is_idle(c))
			on_conn(s, c);
	}
	log_info("ending; %zu requests finish first",
	    s->waiting_count + pool_count(s->pool));
}

static void on_signal(struct server *s)
{
	struct signalfd_siginfo info;

	if (read(s->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGHUP)
		app_reload(s->app);
	else if (s->draining)
		s->cut = true;
	else
		start_draining(s);
}

static void sweep(struct server *s, uint64_t now)
{
	struct conn *next;

	for (struct conn *c = s->waiting.next; c != &s->waiting; c = next) {
		bool idle = is_idle(c);

		next = c->next;
		if (now - c->since_ms < (idle ? IDLE_MAX_MS : REQUEST_MAX_MS))
			continue;
		if (!idle && !c->draining)
			log_info("connection closed: a request was not whole "
				 "after %u s",
			    REQUEST_MAX_MS / 1000);
		drop(s, c);
	}
	s->swept_ms = now;
}

/* Gives the system back what a rush of large requests took: free(3) keeps what
 * lies below the top of a heap. */
static void trim(struct server *s, uint64_t now)
{
	if (now - s->trimmed_ms < TRIM_MS || pool_count(s->pool) > 0)
		return;
	(void)malloc_trim(0);
	s->served = false;
	s->trimmed_ms = now;
}

static void on_time(struct server *s)
{
	uint64_t now = clock_ms();

	if (s->served)
		trim(s, now);
	if (now - s->swept_ms >= SWEEP_MS)
		sweep(s, now);
	if (s->draining && now >= s->drain_until_ms)
		s->cut = true;
	if (!s->draining && !s->accepting && now >= s->accept_again_ms)
		start_accepting(s);
}

static int next_tick(const struct server *s)
{
	if (s->draining || !s->accepting)
		return TICK_MS;
	return s->waiting_count > 0 || s->served ? SWEEP_MS : -1;
}

/* One round. What may close other connections, one of which may have an event in
 * the same round, comes after the events: draining, and making room. */
static void turn(struct server *s)
{
	struct epoll_event events[EVENTS];
	bool accept_ready = false;
	bool signal_ready = false;
	int n = epoll_wait(s->epoll_fd, events, EVENTS, next_tick(s));

	for (int i = 0; i < n; i++) {
		void *tag = events[i].data.ptr;

		if (tag == s->listener)
			accept_ready = true;
		else if (tag == &s->signal_fd)
			signal_ready = true;
		else if (tag == s->pool)
			on_returned(s);
		else
			on_conn(s, tag);
	}
	if (signal_ready)
		on_signal(s);
	if (accept_ready)
		on_accept(s);
	on_time(s);
}

static bool is_done(struct server *s)
{
	return s->draining && s->waiting_count == 0 && pool_count(s->pool) == 0;
}

static int loop(struct server *s)
{
	start_accepting(s);
	while (!s->cut && !is_done(s))
		turn(s);
	listen_close(s->listener);
	if (is_done(s)) {
		pool_stop(s->pool);
		return 0;
	}
	log_warn("ending at once; %zu requests are cut off",
	    s->waiting_count + pool_count(s->pool));
	return 1;
}

static int prepare(struct server *s, const sigset_t *signals, struct err *e)
{
	int r;

	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll_fd < 0)
		return err_sys(e, errno, "epoll_create1");
	s->signal_fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signal_fd < 0)
		return err_sys(e, errno, "signalfd");
	r = pool_start(s->app, s->app->config->threads, &s->pool, e);
	if (r < 0)
		return r;
	if ((r = watch(s, s->signal_fd, &s->signal_fd, EPOLLIN)) < 0 ||
	    (r = watch(s, pool_fd(s->pool), s->pool, EPOLLIN)) < 0) {
		pool_stop(s->pool);
		return err_sys(e, -r, "epoll_ctl");
	}
	return 0;
}

int server_block_signals(sigset_t *ret, struct err *e)
{
	(void)sigemptyset(ret);
	(void)sigaddset(ret, SIGTERM);
	(void)sigaddset(ret, SIGINT);
	(void)sigaddset(ret, SIGHUP);
	if (sigprocmask(SIG_BLOCK, ret, NULL) < 0)
		return err_sys(e, errno, "sigprocmask");
	return 0;
}

int server_run(struct app *app, struct listener *listener,
    const sigset_t *signals, struct err *e)
{
	struct server *s = calloc(1, sizeof(*s));
	int r;

	if (s == NULL) {
		listen_close(listener);
		return err_sys(e, ENOMEM, "the event loop");
	}
	s->app = app;
	s->listener = listener;
	s->epoll_fd = s->signal_fd = -1;
	s->waiting.prev = s->waiting.next = &s->waiting;
	r = prepare(s, signals, e);
	if (r < 0)
		listen_close(listener);
	else
		r = loop(s);
	if (s->signal_fd >= 0)
		(void)close(s->signal_fd);
	if (s->epoll_fd >= 0)
		(void)close(s->epoll_fd);
	free(s);
	return r;
}
