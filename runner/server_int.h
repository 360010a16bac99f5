/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_SERVER_INT_H
#define ISOBOX_SERVER_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "lib/buf.h"
#include "lib/config.h"
#include "lib/job.h"
#include "lib/proto.h"
#include "lib/registry.h"
#include "lib/status.h"
#include "runner/admit.h"
#include "runner/cgroup.h"
#include "runner/kernel.h"
#include "runner/listen.h"
#include "runner/pool.h"
#include "runner/supervisor.h"
#include "runner/workspaces.h"

/* Inside the runner's event loop: server.c, client.c, worker.c, health.c, pool.c. */

/* What an epoll event belongs to; first member of its holder. */
enum source_kind {
	SOURCE_LISTEN,
	SOURCE_SIGNAL,
	SOURCE_CLIENT,
	SOURCE_WORKER,
	SOURCE_IMAGES /* something in images_dir changed */
};

struct source {
	enum source_kind kind;
	int fd;
};

/* A connection until its run starts (then it is the supervisor's) or ends. */
struct client {
	struct source source;
	TAILQ_ENTRY(client) link;
	struct waiter waiter;
	struct buf in; /* the first frame; a job points into it */
	struct job job;
	bool has_job;
	bool watched; /* in the epoll set */
	struct turn turn; /* of a session's step, or a removal */
	struct ws_request ws;
	bool has_ws;
	bool has_kernel; /* a PROTO_KERNEL came */
	enum kernel_wait kernel_wait;
	struct kernel *kernel; /* that it waits for; or NULL */
	char fork_id[LIMIT_ID + 1]; /* of a KERNEL_FORK */
	bool dead; /* freed when the batch of events is through */
	uint64_t deadline_us; /* for the first frame */
};

enum worker_kind {
	WORKER_RUN, /* a supervisor with a client */
	WORKER_PROBE, /* a supervisor that only boots a sandbox */
	WORKER_AHEAD, /* a supervisor that waits for a claim */
	WORKER_DROPPED, /* the same, let go: it ends */
	WORKER_KERNEL, /* a supervisor with a kernel */
	WORKER_JANITOR /* removes what a killed supervisor left */
};

/* A child process of ours and the leaf that it is responsible for. */
struct worker {
	struct source source; /* our end of the control socket */
	TAILQ_ENTRY(worker) link;
	enum worker_kind kind;
	bool holds_slot;
	uint64_t begun_us;
	pid_t pid; /* 0: a janitor that comes at its deadline */
	uint64_t deadline_us; /* then it is killed; UINT64_MAX: it was */
	struct leaf *leaf;
	struct seat seat; /* in the pool */
	uint64_t memory_bytes; /* that the leaf may take; 0 without a run */
	bool offline; /* waits without the network that it was to have */
	struct run_report report;
	bool has_report;
	uint64_t report_us; /* when it came */
	struct turn turn; /* of a session's step */
	bool is_kernel; /* WORKER_KERNEL at first: */
	struct kernel *kernel; /* NULL: none yet, or not any more */
	bool kernel_slot;
	bool kernel_dropped; /* let go before it was a session's */
	struct turn mount; /* the workspaces it may write to */
	char spare[WS_NAME_SIZE]; /* of one that waits for a session; "" */
	struct kernel_kind spare_kind;
};

enum health {
	HEALTH_UNKNOWN, /* the first probe is not back yet */
	HEALTH_GOOD,
	HEALTH_BAD
};

struct server {
	const struct config *config;
	struct registry *registry;
	struct cgroup *cgroup;
	struct peers peers;
	const struct egress_policy *egress; /* NULL: no network for anybody */
	struct admit admit;
	struct source listen;
	struct source signal;
	struct source images; /* fd -1: not watched */
	int lock_fd; /* of the socket */
	int subtree_lock_fd;
	int epoll_fd;
	TAILQ_HEAD(clients, client) clients;
	TAILQ_HEAD(workers, worker) workers;
	uint32_t client_count;
	uint32_t client_max;
	size_t held_bytes; /* in the clients' buffers */
	uint64_t begun_us; /* with the serial: a leaf's name */
	uint64_t leaf_serial;
	struct workspaces workspaces;
	struct kernels kernels;
	struct runner_status status; /* counters */
	struct pool pool;
	uint64_t
	    cap_bytes; /* the memory cap as it was last looked at; 0 = none */
	uint64_t cap_until_us; /* no need to look again before */
	bool cap_lacks; /* and it is in the log */
	enum health health;
	char health_reason[sizeof(((struct err *)0)->msg)];
	uint64_t egress_up_us; /* when a network was last verified; 0: never */
	uint64_t egress_log_us; /* from then on, see health_note_network() */
	unsigned health_failures; /* probes in a row, while it is good */
	bool probing;
	uint64_t next_probe_us; /* UINT64_MAX: none due */
	uint64_t egress_probe_us; /* likewise, for the network's sake */
	uint64_t accept_again_us; /* after EMFILE; UINT64_MAX: accepting */
	bool draining;
	bool abandoned; /* supervisors were told to end */
	uint64_t drain_deadline_us;
};

/* client.c */
void client_accept(struct server *s);
void client_event(struct server *s, struct client *c, uint32_t events);
void client_timeouts(struct server *s, uint64_t now_us);
uint64_t client_deadline_us(const struct server *s);
/* Starts who waits as long as there are free slots. */
void client_start_waiting(struct server *s);
/* Refuses all who have not been started. */
void client_refuse_all(struct server *s, const char *why);
/* Gives c, whose job may run now, a slot, a place in the queue, or a refusal. */
void client_admit(struct server *s, struct client *c);
/* Answer and end: a frame, or a failure. */
void client_reply(struct server *s, struct client *c, enum proto_type type,
    const struct buf *payload);
void client_fail(struct server *s, struct client *c, enum err_kind kind,
    uint32_t retry_after_s, const char *why);
void client_close(struct server *s, struct client *c);
/* Frees the dead ones: after each batch of events. */
void client_bury(struct server *s);

/* worker.c */
/* Forks a supervisor; on success the client's socket is the child's alone. The
 * caller holds a slot for it, which worker_reap() gives back. */
int worker_run(struct server *s, const struct runtime *rt, struct client *c,
    uint64_t queue_us, struct err *e);
int worker_probe(struct server *s, const struct runtime *rt, struct err *e);
/* Forks a supervisor that boots and waits for a claim, in which the mailbox is
 * filled in; borrowed by *ret as long as it lives. */
int worker_ahead(struct server *s, struct run_order *order, struct worker **ret,
    struct err *e);
/* Likewise one with a kernel. */
int worker_kernel(struct server *s, struct run_order *order,
    struct worker **ret, struct err *e);
/* It was told to end, and is killed if it does not. */
void worker_must_end(struct worker *w);
/* Has a WORKER_AHEAD end. */
void worker_let_go(struct worker *w);
/* What the leaf of a run with these limits, and perhaps a network, may take. */
uint64_t worker_memory(
    const struct server *s, const struct limits *l, bool network);
void worker_event(struct server *s, struct worker *w);
/* After SIGCHLD: takes all ended children. */
void worker_reap(struct server *s);
/* Kills children that hang: not even their end may wait for them. */
void worker_timeouts(struct server *s, uint64_t now_us);
uint64_t worker_deadline_us(const struct server *s);
/* In a child that was just forked: nothing of the loop stays open but keep_fd. */
void worker_settle_child(const struct server *s, int keep_fd);
/* Ends the step that runs in w, if one does: w is to be removed. */
void worker_end_step(struct server *s, const struct workspace *w);
/* Lets go of all supervisors, which then end what they hold. */
void worker_abandon_all(struct server *s);

/* health.c */
/* Whether a run may start; the reason in *e if not. */
int health_check(struct server *s, struct err *e);
/* Whether the subtree is memory-capped; s->cap_bytes. */
int health_check_cap(struct server *s, struct err *e);
void health_probe_due(struct server *s, uint64_t now_us);
uint64_t health_due_us(const struct server *s);
void health_probe_result(struct server *s, const struct run_report *r);
/* A run failed by our or the host's fault: look again soon. */
void health_doubt(struct server *s);

/* A run or a probe that began then tells of its network; the log hears of changes
 * only. */
void health_note_network(struct server *s, const struct run_report *r,
    uint64_t begun_us, bool was_run);

/* server.c */
int server_watch(struct server *s, struct source *src, uint32_t events);

#endif
