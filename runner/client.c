/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections from isobox.fcgi: one request each. A connection brings one frame,
 * whole and in bounded time; PROTO_STATUS is answered at once, PROTO_RUN is
 * checked, admitted, and then handed to its supervisor.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/server_int.h"

#define READ_SIZE (64u * 1024)

/* Frames of all who have not been started together. A web side that keeps to the
 * API's 256 KiB a body is far below; a broken one could fill our memory. */
#define HELD_MAX (128u << 20)

#define FIRST_FRAME_US 5000000u
#define EMFILE_PAUSE_US 100000u

static struct client *waiter_client(struct waiter *w)
{
	return (struct client *)(void *)((char *)w -
					 offsetof(struct client, waiter));
}

void client_close(struct server *s, struct client *c)
{
	if (c->dead)
		return;
	admit_cancel(&s->admit, &c->waiter);
	workspaces_turn_end(s, &c->turn);
	/* A supervisor may hold a copy: closing alone would leave it in the
	 * epoll set. */
	if (c->watched)
		(void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->source.fd, NULL);
	if (c->source.fd >= 0)
		(void)close(c->source.fd);
	c->source.fd = -1;
	c->kernel = NULL;
	c->dead = true;
	s->held_bytes -= c->in.len;
}

void client_bury(struct server *s)
{
	struct client *c = TAILQ_FIRST(&s->clients);

	while (c != NULL) {
		struct client *next = TAILQ_NEXT(c, link);

		if (c->dead) {
			TAILQ_REMOVE(&s->clients, c, link);
			s->client_count--;
			job_done(&c->job);
			buf_free(&c->in);
			free(c);
		}
		c = next;
	}
}

/* One small frame into an empty socket buffer: it fits, or nobody reads. */
void client_reply(struct server *s, struct client *c, enum proto_type type,
    const struct buf *payload)
{
	struct buf out = {0};

	proto_put_frame(&out, type, payload->data, payload->len);
	if (!out.failed)
		(void)send(c->source.fd, out.data, out.len,
		    MSG_NOSIGNAL | MSG_DONTWAIT);
	buf_free(&out);
	client_close(s, c);
}

void client_fail(struct server *s, struct client *c, enum err_kind kind,
    uint32_t retry_after_s, const char *why)
{
	struct buf payload = {0};

	put_u32(&payload, (uint32_t)kind);
	put_u32(&payload, retry_after_s);
	put_cstr(&payload, why);
	client_reply(s, c, PROTO_FAIL, &payload);
	buf_free(&payload);
}

/* When a slot should be free: the mean length of a run, shared by the slots. */
static uint32_t retry_after_s(const struct server *s)
{
	const struct runner_status *st = &s->status;
	uint64_t total_us = st->phases[STATUS_BOOT].sum_us +
			    st->phases[STATUS_RUN].sum_us +
			    st->phases[STATUS_CLEANUP].sum_us;
	uint64_t mean_us = st->runs_total > 0 ? total_us / st->runs_total : 0;
	uint64_t wait_us = mean_us * (s->admit.queued + 1) / s->admit.slots;
	uint64_t seconds = (wait_us + 999999) / 1000000;

	if (seconds < 1)
		return 1;
	return seconds < 30 ? (uint32_t)seconds : 30;
}

static void client_full(struct server *s, struct client *c)
{
	s->status.rejected_total++;
	client_fail(
	    s, c, ERR_CAPACITY, retry_after_s(s), "no free execution slot");
}

static const struct runtime *find_runtime(
    const struct server *s, const struct job *j, struct err *e)
{
	return registry_find(s->registry, (const char *)j->runtime.data,
	    j->runtime.len, (const char *)j->version.data, j->version.len, e);
}

/* Likewise, in a kernel. */
static void client_step(struct server *s, struct client *c, uint64_t queue_us)
{
	struct err e;

	if (kernels_claim(s, c, queue_us, &e) < 0) {
		admit_release(&s->admit);
		client_fail(s, c, e.kind, 0, e.msg);
		return;
	}
	histogram_add(&s->status.phases[STATUS_QUEUE], queue_us);
	client_close(s, c);
}

/* The caller has a slot; it is given back when the run cannot start. */
static void client_start(struct server *s, struct client *c)
{
	uint64_t queue_us = clock_us() - c->waiter.since_us;
	const struct runtime *rt;
	struct err e;

	if (c->job.kernel) {
		client_step(s, c, queue_us);
		return;
	}
	/* Looked up again: the registry may have changed while it waited. */
	rt = find_runtime(s, &c->job, &e);
	if (rt == NULL || (!pool_claim(s, rt, c, queue_us) &&
			      worker_run(s, rt, c, queue_us, &e) < 0)) {
		log_error("run %.*s not started: %s",
		    (int)c->job.request_id.len,
		    (const char *)c->job.request_id.data, e.msg);
		admit_release(&s->admit);
		client_fail(
		    s, c, rt == NULL ? e.kind : ERR_SANDBOX_FAILED, 0, e.msg);
		return;
	}
	histogram_add(&s->status.phases[STATUS_QUEUE], queue_us);
	client_close(s, c);
}

void client_start_waiting(struct server *s)
{
	struct waiter *w;

	while ((w = admit_next(&s->admit)) != NULL)
		client_start(s, waiter_client(w));
}

void client_admit(struct server *s, struct client *c)
{
	switch (admit_request(&s->admit, &c->waiter, clock_us())) {
	case ADMIT_NOW:
		client_start(s, c);
		break;
	case ADMIT_QUEUED:
		break;
	case ADMIT_FULL:
		client_full(s, c);
		break;
	}
}

static void client_run(
    struct server *s, struct client *c, const uint8_t *payload, size_t len)
{
	struct err e;

	if (s->draining) {
		client_fail(s, c, ERR_SANDBOX_FAILED, 0,
		    "the service is shutting down");
		return;
	}
	if (job_decode(payload, len, &c->job, &e) < 0) {
		log_error("refused a job: %s", e.msg);
		client_fail(s, c, ERR_SANDBOX_FAILED, 0, e.msg);
		return;
	}
	c->has_job = true;
	/* A kernel has its runtime, whatever the registry says by now. */
	if (health_check(s, &e) < 0 ||
	    (!c->job.kernel && find_runtime(s, &c->job, &e) == NULL)) {
		client_fail(s, c, e.kind, 0, e.msg);
		return;
	}
	if (c->job.session.len > 0)
		workspaces_queue_step(s, c);
	else
		client_admit(s, c);
}

static void client_status(struct server *s, struct client *c)
{
	struct runner_status st = s->status;
	struct buf payload = {0};
	struct err e;

	if (s->draining)
		(void)err_set(&e, ERR_SANDBOX_FAILED, 0, "shutting down");
	else if (health_check(s, &e) < 0)
		;
	else if (s->health == HEALTH_UNKNOWN)
		(void)err_set(&e, ERR_SANDBOX_FAILED, 0,
		    "the first sandbox is still being tried");
	else
		st.ready = true;
	if (!st.ready)
		(void)snprintf(st.reason, sizeof st.reason, "%s", e.msg);
	(void)snprintf(st.backend, sizeof st.backend, "gvisor");
	st.slots = s->admit.slots;
	st.running = s->admit.running;
	st.queued = s->admit.queued;
	pool_status(s, &st.pool);
	kernels_status(s, &st.kernels);
	runner_status_encode(&st, &payload);
	client_reply(s, c, PROTO_STATUS_REPLY, &payload);
	buf_free(&payload);
}

static void client_frame(struct server *s, struct client *c)
{
	const uint8_t *payload;
	enum proto_type type;
	size_t len;
	ssize_t n = proto_next(c->in.data, c->in.len, &type, &payload, &len);

	if (n == 0)
		return;
	if (n < 0 || (size_t)n != c->in.len) {
		log_warn("a client broke the protocol");
		client_close(s, c);
	} else if (type == PROTO_RUN) {
		client_run(s, c, payload, len);
	} else if (type == PROTO_WS) {
		workspaces_request(s, c, payload, len);
	} else if (type == PROTO_KERNEL) {
		kernels_request(s, c, payload, len);
	} else if (type == PROTO_STATUS && len == 0) {
		client_status(s, c);
	} else {
		log_warn("a client sent a frame of type %u", (unsigned)type);
		client_close(s, c);
	}
}

void client_event(struct server *s, struct client *c, uint32_t events)
{
	uint8_t *room;
	ssize_t n;

	if (c->dead)
		return;
	/* After its request a client has nothing to say but that it leaves. */
	if (c->has_job || c->has_ws || c->has_kernel ||
	    (events & (EPOLLERR | EPOLLHUP))) {
		if (c->waiter.queued)
			s->status.gone_total++;
		client_close(s, c);
		return;
	}
	room = buf_reserve(&c->in, READ_SIZE);
	n = room != NULL ? read(c->source.fd, room, READ_SIZE) : 0;
	if (n > 0) {
		c->in.len += (size_t)n;
		s->held_bytes += (size_t)n;
		if (s->held_bytes > HELD_MAX) {
			client_full(s, c);
			return;
		}
		client_frame(s, c);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		client_close(s, c);
	}
}

static void client_new(struct server *s, int fd)
{
	struct client *c = NULL;
	uid_t uid;

	if (!peers_allow(&s->peers, fd, &uid))
		log_warn("refused a connection of user %u: not in "
			 "allowed_users",
		    (unsigned)uid);
	else
		c = calloc(1, sizeof *c);
	if (c == NULL) {
		(void)close(fd);
		return;
	}
	c->source = (struct source){.kind = SOURCE_CLIENT, .fd = fd};
	c->deadline_us = clock_us() + FIRST_FRAME_US;
	TAILQ_INSERT_TAIL(&s->clients, c, link);
	s->client_count++;
	if (s->client_count > s->client_max) {
		client_full(s, c);
		return;
	}
	/* Mostly the frame is there already, and a sandbox waits: then the
	 * connection is handed on before it was watched. */
	client_event(s, c, EPOLLIN);
	if (c->dead)
		return;
	c->watched = true;
	if (server_watch(s, &c->source, EPOLLIN | EPOLLRDHUP) < 0)
		client_close(s, c);
}

void client_accept(struct server *s)
{
	for (;;) {
		int fd = accept4(
		    s->listen.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			client_new(s, fd);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EAGAIN) {
			/* Out of descriptors: the level-triggered event would
			 * spin. */
			log_error("accept: %s", strerror(errno));
			(void)epoll_ctl(
			    s->epoll_fd, EPOLL_CTL_DEL, s->listen.fd, NULL);
			s->accept_again_us = clock_us() + EMFILE_PAUSE_US;
		}
		return;
	}
}

void client_timeouts(struct server *s, uint64_t now_us)
{
	struct waiter *w;
	struct client *c;

	while ((w = admit_expired(&s->admit, now_us)) != NULL)
		client_full(s, waiter_client(w));
	TAILQ_FOREACH (c, &s->clients, link)
		if (!c->has_job && !c->has_ws && !c->has_kernel &&
		    now_us >= c->deadline_us)
			client_close(s, c);
}

uint64_t client_deadline_us(const struct server *s)
{
	uint64_t first = admit_deadline_us(&s->admit);
	const struct client *c;

	TAILQ_FOREACH (c, &s->clients, link)
		if (!c->has_job && !c->has_ws && !c->has_kernel && !c->dead &&
		    c->deadline_us < first)
			first = c->deadline_us;
	return first;
}

void client_refuse_all(struct server *s, const char *why)
{
	struct client *c;

	TAILQ_FOREACH (c, &s->clients, link)
		if (!c->dead)
			client_fail(s, c, ERR_SANDBOX_FAILED, 0, why);
}
