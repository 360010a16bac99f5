/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One sandbox whose checkpoints a test makes and restores: the part of a kernel's
 * supervisor that runner/checkpoint.h is for. Descriptors 0 and 1 are the guest's,
 * 3 is a SOCK_SEQPACKET with a command and an answer a packet. Start it as an
 * unprivileged user in a delegated, capped subtree.
 *
 *	checkpoint_live WORKSPACES ROOTFS RUNSC INIT WORKSPACE LEAF boot
 *	checkpoint_live WORKSPACES ROOTFS RUNSC INIT WORKSPACE LEAF restore ID
 *	checkpoint_live WORKSPACES ROOTFS RUNSC INIT WORKSPACE LEAF store
 *
 * LINK: runner/checkpoint*.c runner/sandbox*.c runner/bundle.c runner/runsc.c
 * LINK: runner/cgroup*.c runner/ws_dir.c runner/ws_walk.c runner/ws_trash.c
 * LINK: runner/ws_copy.c
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/config.h"
#include "lib/harden.h"
#include "lib/token.h"
#include "runner/checkpoint.h"
#include "runner/ws_copy.h"

#define CONTROL 3
#define MIB (1ull << 20)
#define BUSY_TRIES 2000

struct live {
	struct cgroup *cg;
	struct leaf *leaf;
	struct ws_root root;
	struct checkpoints cp;
	struct sandbox_spec spec;
	struct stamp_cache cache;
	struct checkpoint_stamp stamp;
	struct sandbox box;
	struct checkpoint_save save;
	int copy_from, copy_to;
};

static struct err e;

static void answer(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void answer(const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	(void)send(CONTROL, text, (size_t)n, MSG_NOSIGNAL);
}

static void answer_rc(int rc)
{
	if (rc < 0)
		answer("fail %d %s %s", -rc, err_kind_word(e.kind), e.msg);
	else
		answer("ok %d", rc);
}

static void must(int rc)
{
	if (rc >= 0)
		return;
	answer_rc(rc);
	exit(1);
}

/* Others of the same test may be opening it; nobody keeps the lock here. */
static void open_store(struct live *l, char *workspaces)
{
	const struct config c = {.workspaces_dir = workspaces};
	int rc = -EBUSY;

	for (int i = 0; i < BUSY_TRIES && rc == -EBUSY; i++) {
		rc = ws_root_open(&c, clock_us(), &l->root, &e);
		if (rc == -EBUSY)
			(void)usleep(1000);
	}
	must(rc);
	(void)flock(l->root.fd, LOCK_UN);
	must(checkpoints_open(&l->root, &l->cp, &e));
}

static void start(struct live *l, const char *leaf, const char *restore)
{
	must(cgroup_open(NULL, &l->cg, &e));
	must(leaf_create(l->cg, leaf, &l->leaf, &e));
	must(leaf_set_memory(l->leaf, 768 * MIB, &e));
	must(leaf_set_pids(l->leaf, 1024, &e));
	must(checkpoint_stamp_now(&l->cache, &l->spec, &l->stamp, &e));
	if (restore != NULL)
		must(checkpoint_restore(&l->cp, restore, &l->spec, &l->stamp,
		    l->leaf, &l->box, &e));
	else
		must(sandbox_start(&l->spec, l->leaf, &l->box, &e));
}

/* ---- commands ------------------------------------------------------------ */

static int open_dir(const char *path)
{
	return strcmp(path, "-") == 0
		   ? -1
		   : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* save ID MAX_BYTES MIN_FREE TIMEOUT_MS GO_ON FROM TO COPY_MAX */
static void begin_save(struct live *l, char **w)
{
	static struct checkpoint_order o;
	static char id[LIMIT_ID + 1];

	(void)snprintf(id, sizeof id, "%s", w[1]);
	l->copy_from = open_dir(w[6]);
	l->copy_to = open_dir(w[7]);
	o = (struct checkpoint_order){.cp = &l->cp,
	    .id = id,
	    .box = &l->box,
	    .platform = l->spec.platform,
	    .stamp = &l->stamp,
	    .about = {(const uint8_t *)id, strlen(id)},
	    .max_bytes = strtoull(w[2], NULL, 10),
	    .promised_bytes = UINT64_MAX,
	    .min_free_bytes = strtoull(w[3], NULL, 10),
	    .timeout_ms = (unsigned)strtoul(w[4], NULL, 10),
	    .go_on = w[5][0] == '1',
	    .copy_from = l->copy_from,
	    .copy_to = l->copy_to,
	    .copy_max_bytes = strtoull(w[8], NULL, 10)};
	if (checkpoint_save_begin(&o, &l->save, &e) < 0)
		answer_rc(-e.code);
	else
		answer("begun %d", l->save.pid);
}

static void end_save(struct live *l)
{
	struct checkpoint_saved s;
	int rc = checkpoint_save_end(&l->save, &s, &e);

	if (rc == -EAGAIN)
		checkpoint_save_answer(&l->save, NULL);
	if (rc == -EAGAIN || rc == -EINPROGRESS)
		return;
	if (rc < 0)
		answer_rc(rc);
	else
		answer("saved %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
		    s.bytes, s.pause_us, s.copied.bytes, s.copied.files);
	if (l->copy_from >= 0)
		(void)close(l->copy_from);
	if (l->copy_to >= 0)
		(void)close(l->copy_to);
}

static int list_one(void *arg, const char *id, uint64_t bytes)
{
	buf_printf(arg, " %s:%" PRIu64, id, bytes);
	return 0;
}

static void list(struct live *l)
{
	cleanup_buf struct buf text = {0};
	int rc = checkpoints_list(&l->cp, list_one, &text, &e);

	buf_putc(&text, '\0');
	if (rc < 0)
		answer_rc(rc);
	else
		answer("list%s", (char *)text.data);
}

/* tree FROM TO MAX: in this process, for good. */
static void tree(char **w)
{
	struct ws_usage u = {0};
	int rc = ws_override_modes(&e);

	if (rc == 0)
		rc = ws_copy(open_dir(w[1]), open_dir(w[2]),
		    strtoull(w[3], NULL, 10), &u, &e);
	if (rc < 0)
		answer_rc(rc);
	else
		answer("copied %" PRIu64 " %" PRIu64, u.bytes, u.files);
}

static void about(struct live *l, const char *id)
{
	cleanup_buf struct buf text = {0};
	int rc = checkpoint_about(&l->cp, id, &text, &e);

	if (rc < 0)
		answer_rc(rc);
	else
		answer("about %.*s", (int)text.len, (char *)text.data);
}

static void command(struct live *l, char *text)
{
	char *w[10] = {0};
	uint64_t bytes = 0;
	int n = 0, rc;

	for (char *t; n < 9 && (t = strsep(&text, " ")) != NULL;)
		w[n++] = t;
	if (strcmp(w[0], "save") == 0 && n == 9) {
		begin_save(l, w);
	} else if (strcmp(w[0], "cancel") == 0) {
		checkpoint_save_cancel(&l->save);
		answer("ok 0");
	} else if (strcmp(w[0], "list") == 0) {
		list(l);
	} else if (strcmp(w[0], "sweep") == 0) {
		answer_rc(checkpoints_sweep(&l->cp, &e));
	} else if (strcmp(w[0], "remove") == 0 && n == 2) {
		answer_rc(checkpoint_remove(&l->cp, w[1], &e));
	} else if (strcmp(w[0], "copy") == 0 && n == 3) {
		answer_rc(checkpoint_copy(&l->cp, w[1], w[2], &e));
	} else if (strcmp(w[0], "tree") == 0 && n == 4) {
		tree(w);
	} else if (strcmp(w[0], "about") == 0 && n == 2) {
		about(l, w[1]);
	} else if (strcmp(w[0], "bytes") == 0 && n == 2) {
		rc = checkpoint_bytes(&l->cp, w[1], &bytes, &e);
		if (rc < 0)
			answer_rc(rc);
		else
			answer("bytes %" PRIu64, bytes);
	} else {
		answer("what");
	}
}

/* ---- the loop ------------------------------------------------------------ */

/* False at the end of the test. */
static bool on_control(struct live *l)
{
	char text[8192];
	ssize_t n = recv(CONTROL, text, sizeof text - 1, 0);

	if (n <= 0)
		return false;
	text[n] = '\0';
	command(l, text);
	return true;
}

static void relay_out(struct live *l)
{
	static char data[65536];
	ssize_t n = read(l->box.out_fd, data, sizeof data);

	if (n > 0) {
		(void)!write(1, data, (size_t)n);
	} else if (n == 0) {
		(void)close(l->box.out_fd);
		l->box.out_fd = -1;
		(void)close(1);
	}
}

static void relay_in(struct live *l)
{
	static char data[65536];
	ssize_t n = read(0, data, sizeof data);

	if (n <= 0) {
		(void)close(0);
		return;
	}
	for (ssize_t at = 0; at < n;) {
		struct pollfd p = {l->box.in_fd, POLLOUT, 0};
		ssize_t put;

		(void)poll(&p, 1, 1000);
		put = write(l->box.in_fd, data + at, (size_t)(n - at));
		if (put < 0 && errno != EAGAIN)
			return;
		at += put > 0 ? put : 0;
	}
}

static void relay_log(struct live *l)
{
	char text[1024];
	ssize_t n = read(l->box.log_fd, text, sizeof text);

	if (n > 0) {
		(void)!write(2, text, (size_t)n);
	} else if (n == 0) {
		(void)close(l->box.log_fd);
		l->box.log_fd = -1;
	}
}

static void loop(struct live *l)
{
	for (;;) {
		struct pollfd p[] = {{CONTROL, POLLIN, 0}, {0, POLLIN, 0},
		    {l->box.out_fd, POLLIN, 0}, {l->box.log_fd, POLLIN, 0},
		    {l->save.fd, POLLIN, 0}};
		int wait = l->save.fd < 0
			       ? -1
			       : clock_left_ms(l->save.deadline_us / 1000);

		if (l->box.in_fd < 0)
			p[1].fd = -1;
		if (poll(p, 5, wait) == 0 || p[4].revents != 0)
			end_save(l);
		if (p[2].revents != 0)
			relay_out(l);
		if (p[3].revents != 0)
			relay_log(l);
		if (p[1].revents != 0)
			relay_in(l);
		if (p[0].revents != 0 && !on_control(l))
			return;
	}
}

int main(int argc, char **argv)
{
	static struct live l = {
	    .box = SANDBOX_NONE, .save = CHECKPOINT_SAVE_NONE};
	uint64_t begun;

	if (argc < 8 || fcntl(CONTROL, F_SETFD, FD_CLOEXEC) != 0) {
		(void)fputs("usage: see checkpoint_live.c\n", stderr);
		return 2;
	}
	must(token_init(&e));
	must(harden_process(1024, &e));
	open_store(&l, argv[1]);
	l.spec = (struct sandbox_spec){.rootfs = argv[2],
	    .runsc = argv[3],
	    .init_path = argv[4],
	    .platform = "systrap",
	    .workspace = argv[5]};
	begun = clock_us();
	if (strcmp(argv[7], "store") != 0)
		start(&l, argv[6], argc > 8 ? argv[8] : NULL);
	answer("up %d %" PRIu64, l.box.pid, clock_us() - begun);
	loop(&l);
	checkpoint_save_cancel(&l.save);
	(void)sandbox_done(&l.box, 5000, &e);
	if (l.leaf != NULL)
		(void)leaf_destroy(l.leaf, 5000, &e);
	cgroup_close(l.cg);
	ws_root_close(&l.root);
	return 0;
}
