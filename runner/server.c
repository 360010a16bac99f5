/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. One thread, one epoll set, tagged sources. The loop only
 * does what takes microseconds: it reads one frame from each client, decides who
 * gets a slot, forks, and counts. Whatever waits for a sandbox is a child.
 *
 * What survives us is only in the cgroup tree: the start kills and removes every
 * leaf that is there. What we survive: any child, killed at any moment.
 */
#include "runner/server.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "runner/server_int.h"

#define EVENTS_AT_ONCE 32
#define QUEUE_MAX 1000u
#define DRAIN_US 30000000u

/* After that: each supervisor and each janitor has its own bounds below it. */
#define ABANDON_US 60000000u

/* Connections at once, as far as our descriptors reach: what stays of them is
 * for the loop itself and for the leaf and control socket of each run. */
#define CLIENT_MAX 1024u
#define FDS_RESERVED 64u
#define FDS_PER_RUN 8u
#define CLIENT_MIN 64u

/* A sandbox inherits the limit: with 256 runsc 2024 does not boot, with 512 it
 * does (measured). */
#define FDS_OF_RUNSC 512u

int server_watch(struct server *s, struct source *src, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = src};

	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, src->fd, &ev) == 0
		   ? 0
		   : -errno;
}

static int load_registry(struct server *s, struct err *e)
{
	struct registry *fresh = NULL;
	int rc = registry_load(
	    s->config->registry_dir, s->config->images_dir, &fresh, e);

	if (rc < 0)
		return rc;
	pool_set_registry(s, fresh);
	kernels_drop_waiting(s);
	registry_free(s->registry);
	s->registry = fresh;
	registry_log_missing(fresh);
	return 0;
}

static void reload(struct server *s)
{
	struct err e;

	if (load_registry(s, &e) < 0) {
		log_error(
		    "registry not reloaded, the old one stays: %s", e.msg);
		return;
	}
	log_info("registry reloaded");
	health_doubt(s);
}

static int open_signals(struct server *s, struct err *e)
{
	sigset_t set;

	if (sigemptyset(&set) != 0 || sigaddset(&set, SIGCHLD) != 0 ||
	    sigaddset(&set, SIGTERM) != 0 || sigaddset(&set, SIGINT) != 0 ||
	    sigaddset(&set, SIGHUP) != 0 ||
	    sigprocmask(SIG_BLOCK, &set, NULL) != 0)
		return err_sys(e, errno, "sigprocmask");
	s->signal.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signal.fd < 0)
		return err_sys(e, errno, "signalfd");
	return 0;
}

/* An image that changes shows in its directory. Without this watch, what waits
 * with the old one is used up or grows too old. */
static void watch_images(struct server *s)
{
	s->images.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (s->images.fd >= 0 &&
	    inotify_add_watch(s->images.fd, s->config->images_dir,
		IN_ONLYDIR | IN_CREATE | IN_MOVE | IN_DELETE |
		    IN_CLOSE_WRITE) >= 0 &&
	    server_watch(s, &s->images, EPOLLIN) == 0)
		return;
	log_info(
	    "%s is not watched: %s", s->config->images_dir, strerror(errno));
	if (s->images.fd >= 0)
		(void)close(s->images.fd);
	s->images.fd = -1;
}

static void images_event(struct server *s)
{
	char events[4096];

	while (read(s->images.fd, events, sizeof events) > 0)
		;
	pool_check_images(s);
	kernels_drop_waiting(s);
}

static int share_descriptors(struct server *s, struct err *e)
{
	const rlim_t reserved =
	    FDS_RESERVED +
	    FDS_PER_RUN * ((rlim_t)s->config->concurrency +
			      (s->config->warm ? s->config->warm_max : 0) +
			      s->config->kernel_slots + s->config->kernel_warm);
	const rlim_t least = reserved + CLIENT_MIN > FDS_OF_RUNSC
				 ? reserved + CLIENT_MIN
				 : FDS_OF_RUNSC;
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) != 0)
		return err_sys(e, errno, "RLIMIT_NOFILE");
	if (l.rlim_cur < least)
		return err_set(e, ERR_INTERNAL, EMFILE,
		    "%llu open files are allowed, %u slots need at least %llu: "
		    "raise the limit (ulimit -Hn, systemd: LimitNOFILE)",
		    (unsigned long long)l.rlim_cur, s->config->concurrency,
		    (unsigned long long)least);
	l.rlim_cur -= reserved;
	s->client_max =
	    l.rlim_cur < CLIENT_MAX ? (uint32_t)l.rlim_cur : CLIENT_MAX;
	return 0;
}

static int server_open(struct server *s, struct err *e)
{
	const struct config *c = s->config;
	int rc;

	if ((rc = share_descriptors(s, e)) < 0 ||
	    (rc = peers_resolve(c->allowed_users, &s->peers, e)) < 0 ||
	    (rc = load_registry(s, e)) < 0 ||
	    (rc = listen_open(
		 c->runner_socket, &s->listen.fd, &s->lock_fd, e)) < 0 ||
	    (rc = cgroup_open(c->cgroup, &s->cgroup, e)) < 0 ||
	    (rc = cgroup_lock(s->cgroup, &s->subtree_lock_fd, e)) < 0 ||
	    (rc = cgroup_sweep(s->cgroup, e)) < 0 ||
	    (rc = open_signals(s, e)) < 0)
		return rc;
	workspaces_open(s);
	kernels_open(s);
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll_fd < 0 || server_watch(s, &s->listen, EPOLLIN) < 0 ||
	    server_watch(s, &s->signal, EPOLLIN) < 0)
		return err_sys(e, errno, "epoll");
	watch_images(s);
	return 0;
}

static void server_close(struct server *s)
{
	struct err e;

	client_refuse_all(s, "the service is shutting down");
	client_bury(s);
	kernels_close(s);
	workspaces_close(s);
	if (s->subtree_lock_fd >= 0 && cgroup_sweep(s->cgroup, &e) < 0)
		log_error("%s", e.msg);
	cgroup_close(s->cgroup);
	if (s->listen.fd >= 0)
		(void)unlink(s->config->runner_socket);
	close_fd(&s->listen.fd);
	close_fd(&s->signal.fd);
	close_fd(&s->images.fd);
	close_fd(&s->epoll_fd);
	close_fd(&s->lock_fd);
	close_fd(&s->subtree_lock_fd);
	pool_done(&s->pool);
	registry_free(s->registry);
	peers_free(&s->peers);
}

/* First signal: no new runs, the running ones finish. Second: they end, too. */
static void drain(struct server *s)
{
	if (!s->draining) {
		log_info("draining: %u runs to finish", s->admit.running);
		s->draining = true;
		s->drain_deadline_us = clock_us() + DRAIN_US;
		(void)unlink(s->config->runner_socket);
		/* Who has connected by now is told, and does not wait. */
		client_accept(s);
		(void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->listen.fd, NULL);
		client_refuse_all(s, "the service is shutting down");
		pool_empty(s);
		kernels_drain(s);
		return;
	}
	if (!s->abandoned)
		s->drain_deadline_us = clock_us();
}

static void signal_event(struct server *s)
{
	struct signalfd_siginfo si;

	while (read(s->signal.fd, &si, sizeof si) == (ssize_t)sizeof si) {
		switch (si.ssi_signo) {
		case SIGCHLD:
			worker_reap(s);
			break;
		case SIGHUP:
			reload(s);
			break;
		case SIGTERM:
		case SIGINT:
			drain(s);
			break;
		default:
			break;
		}
	}
}

/* True when a signal is to be taken. */
static bool dispatch(struct server *s, const struct epoll_event *ev)
{
	struct source *src = ev->data.ptr;

	switch (src->kind) {
	case SOURCE_LISTEN:
		client_accept(s);
		break;
	case SOURCE_SIGNAL:
		return true;
	case SOURCE_CLIENT:
		client_event(s, (struct client *)(void *)src, ev->events);
		break;
	case SOURCE_WORKER:
		worker_event(s, (struct worker *)(void *)src);
		break;
	case SOURCE_IMAGES:
		images_event(s);
		break;
	}
	return false;
}

static uint64_t min_us(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Milliseconds until something is due, rounded up; -1 = nothing. */
static int wait_ms(const struct server *s)
{
	uint64_t due = client_deadline_us(s);
	uint64_t now = clock_us();

	due = min_us(due, worker_deadline_us(s));
	due = min_us(due, workspaces_deadline_us(s));
	due = min_us(due, kernels_due_us(s));
	due = min_us(due, s->accept_again_us);
	if (!s->draining)
		due = min_us(due, pool_due_us(s));
	if (!s->probing && !s->draining)
		due = min_us(due, health_due_us(s));
	if (s->draining)
		due = min_us(due, s->drain_deadline_us);
	if (due == UINT64_MAX)
		return -1;
	return due > now ? (int)min_us((due - now + 999) / 1000, 60000) : 0;
}

static void timers(struct server *s)
{
	uint64_t now = clock_us();

	client_timeouts(s, now);
	worker_timeouts(s, now);
	workspaces_timeouts(s, now);
	workspaces_turns(s, now);
	health_probe_due(s, now);
	if (now >= s->accept_again_us) {
		s->accept_again_us = UINT64_MAX;
		if (!s->draining)
			(void)server_watch(s, &s->listen, EPOLLIN);
	}
}

/* True when the loop is to end. */
static bool drained(struct server *s)
{
	if (!s->draining)
		return false;
	if (TAILQ_EMPTY(&s->workers) && !workspaces_busy(s))
		return true;
	if (clock_us() < s->drain_deadline_us)
		return false;
	if (s->abandoned) {
		log_error("ending with children that do not end");
		return true;
	}
	worker_abandon_all(s);
	workspaces_abandon(s);
	s->abandoned = true;
	s->drain_deadline_us = clock_us() + ABANDON_US;
	return false;
}

static void server_loop(struct server *s)
{
	while (!drained(s)) {
		struct epoll_event ev[EVENTS_AT_ONCE];
		int n = epoll_wait(s->epoll_fd, ev, EVENTS_AT_ONCE, wait_ms(s));

		bool signalled = false;

		for (int i = 0; i < n; i++)
			signalled |= dispatch(s, &ev[i]);
		/* After the batch: it frees workers, to which a later event of
		 * the batch may still point. */
		if (signalled)
			signal_event(s);
		timers(s);
		client_start_waiting(s);
		pool_tick(s, clock_us());
		kernels_tick(s, clock_us());
		client_bury(s);
	}
}

static uint32_t cpu_count(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof set, &set) != 0)
		return 1;
	return (uint32_t)CPU_COUNT(&set);
}

int server_run(const struct config *config, const struct egress_policy *policy,
    struct err *e)
{
	struct server s = {.config = config,
	    .egress = config->allow_network ? policy : NULL,
	    .status = {.egress = config->allow_network ? STATUS_EGRESS_UNKNOWN
						       : STATUS_EGRESS_OFF},
	    .listen = {.kind = SOURCE_LISTEN, .fd = -1},
	    .signal = {.kind = SOURCE_SIGNAL, .fd = -1},
	    .images = {.kind = SOURCE_IMAGES, .fd = -1},
	    .pool = {.cpus = cpu_count()},
	    .lock_fd = -1,
	    .subtree_lock_fd = -1,
	    .epoll_fd = -1,
	    .begun_us = clock_us(),
	    .accept_again_us = UINT64_MAX,
	    .egress_probe_us = UINT64_MAX};
	int rc;

	if (s.egress != NULL)
		(void)snprintf(s.status.egress_driver,
		    sizeof s.status.egress_driver, "%s",
		    s.egress->driver->name);
	TAILQ_INIT(&s.clients);
	TAILQ_INIT(&s.workers);
	TAILQ_INIT(&s.kernels.list);
	s.kernels.spare_bytes = DEMAND_GUESS_BYTES;
	s.kernels.memory_look_us = UINT64_MAX;
	admit_init(
	    &s.admit, config->concurrency, config->acquire_wait_ms, QUEUE_MAX);
	rc = server_open(&s, e);
	if (rc == 0) {
		log_info("listening at %s, %u slots", config->runner_socket,
		    config->concurrency);
		server_loop(&s);
		log_info("ended");
	}
	server_close(&s);
	return rc;
}
