/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel goes to disk and comes back, inside its supervisor. The save is a
 * process beside us; meanwhile the program stands still and we poll as ever. When
 * it cannot be saved it goes on as if nothing had been, and the runner hears why.
 * Its checkpoint stays until the first step after the restore: whoever is killed
 * before that has lost nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "runner/run.h"
#include "runner/ws_op.h"

/* Measured: under a second with 60 MB, two when compressed; busy disks take
 * longer. */
#define SAVE_MS 60000u

/* An image holds the pages that the sandbox has, which are charged to its leaf with
 * more besides (measured: half of that with bare Python, nine tenths when it is
 * full of data), and what the sentry says of them. */
#define IMAGE_EXTRA (4ull << 20)

/* ---- coming back --------------------------------------------------------- */

static int restore(
    struct run *r, const struct sandbox_spec *spec, struct err *e)
{
	const struct kernel_order *k = r->order->kernel;
	int rc = checkpoint_restore(k->checkpoints, k->id, spec,
	    &r->kernel.stamp, r->order->leaf, &r->box, e);

	r->kernel.unrestorable =
	    rc == -ENOENT || rc == -ESTALE || rc == -EBADMSG;
	if (rc < 0)
		return rc;
	r->kernel.restored = true;
	proto_put_frame(&r->to_guest, PROTO_GUEST_RESTORED, NULL, 0);
	r->phase = PHASE_START;
	return r->to_guest.failed
		   ? err_set(e, ERR_INTERNAL, ENOMEM, "out of memory")
		   : 0;
}

void kernel_had_no_network(struct run *r, const struct sandbox_spec *spec)
{
	struct sandbox_spec as_it_is = *spec;
	struct err e;

	as_it_is.resolv_conf = NULL;
	r->kernel.stamped &= checkpoint_stamp_now(r->order->kernel->stamps,
				 &as_it_is, &r->kernel.stamp, &e) == 0;
}

int kernel_needs_network(const struct run *r, struct err *e)
{
	if (!r->kernel.on || !r->order->kernel->restore ||
	    !r->order->kernel->online)
		return 0;
	return err_set(e, ERR_SANDBOX_FAILED, ENETDOWN,
	    "it has a network, and none can be had: %.160s",
	    r->network_why[0] != '\0' ? r->network_why
				      : "the service lets nobody have one");
}

/* What runsc and our own set-up say when the host lacks something: the words of
 * strerror(3), in Go's spelling. */
static bool says_host(const struct buf *log)
{
	static const char *const words[] = {"sandbox set-up:",
	    "annot allocate memory", "o space left on device",
	    "esource temporarily unavailable", "oo many open files"};

	for (size_t i = 0; log->len > 0 && i < sizeof words / sizeof words[0];
	     i++)
		if (memmem(log->data, log->len, words[i], strlen(words[i])) !=
		    NULL)
			return true;
	return false;
}

bool kernel_is_unrestorable(const struct run *r)
{
	/* Back, and ended before it could say so: by its own code, which would
	 * do the same each time. */
	const bool at_once = r->kernel.back && r->phase == PHASE_START &&
			     (r->end == RUN_END_EXIT || r->end == RUN_END_OOM ||
				 r->end == RUN_END_TIMEOUT);

	return r->kernel.unrestorable || at_once;
}

bool kernel_was_refused(const struct run *r)
{
	return r->kernel.on && r->order->kernel->restore &&
	       r->phase == PHASE_START && r->kernel.guest_ended &&
	       !says_host(&r->log);
}

int kernel_start(struct run *r, const struct sandbox_spec *spec, struct err *e)
{
	const struct kernel_order *k = r->order->kernel;
	struct err why;

	if (spec->resolv_conf == NULL && kernel_needs_network(r, e) < 0)
		return -e->code;

	if (k->id != NULL)
		(void)snprintf(r->kernel.id, sizeof r->kernel.id, "%s", k->id);
	if (k->checkpoints != NULL &&
	    checkpoint_stamp_now(k->stamps, spec, &r->kernel.stamp, &why) == 0)
		r->kernel.stamped = true;
	else if (k->restore)
		return err_set(e, ERR_INTERNAL, EIO,
		    "its checkpoint cannot be checked: %s",
		    k->checkpoints != NULL ? why.msg : "there are none");
	return k->restore ? restore(r, spec, e)
			  : sandbox_start(spec, r->order->leaf, &r->box, e);
}

int kernel_forget_checkpoint(struct run *r, struct err *e)
{
	if (!r->kernel.restored)
		return 0;
	r->kernel.restored = false;
	return checkpoint_remove(
	    r->order->kernel->checkpoints, r->kernel.id, e);
}

/* ---- going --------------------------------------------------------------- */

static void close_copies(struct run *r)
{
	if (r->kernel.copy_from >= 0)
		(void)close(r->kernel.copy_from);
	if (r->kernel.copy_to >= 0)
		(void)close(r->kernel.copy_to);
	r->kernel.copy_from = r->kernel.copy_to = -1;
}

/* ---- promises ------------------------------------------------------------ */

static uint64_t image_bytes(const struct run *r)
{
	const int64_t now = leaf_memory_now(r->order->leaf);

	return IMAGE_EXTRA +
	       (now >= 0 ? (uint64_t)now : r->limits.memory_bytes);
}

/* Of a fork's workspace: what it has and may get until it stands still. */
static uint64_t copy_bytes(const struct run *r)
{
	const struct step_space *x = &r->step->spaces[0];
	const uint64_t most =
	    atomic_load(&x->account->bytes) + LIMIT_WS_OVERSHOOT;

	return most < x->quota ? most : x->quota;
}

/* Before the first byte is written, also of a fork. What it came to the runner
 * writes down, which takes the promise back, however the save ends. */
static int promise(struct run *r, uint64_t bytes, struct err *e)
{
	struct ws_account *a = r->step->spaces[0].account;
	int rc;

	atomic_store(&a->saving, bytes);
	rc = ws_storage_room(r->order->config,
	    r->order->kernel->checkpoints->root, r->step->ledger, e);
	if (rc < 0)
		atomic_store(&a->saving, 0);
	return rc;
}

/* It goes on. */
static void stays(struct run *r, const struct err *e)
{
	kernel_go_idle(r);
	r->kernel.failure = e->kind;
	(void)snprintf(r->why, sizeof r->why, "%s", e->msg);
	run_report(r, KERNEL_WORD_STAYS);
	r->why[0] = '\0';
}

/* What its session's quota leaves. */
static uint64_t room(const struct run *r)
{
	const struct step_space *x = &r->step->spaces[0];
	const uint64_t used = atomic_load(&x->account->bytes);

	return x->quota > used ? x->quota - used : 0;
}

static int open_copies(
    struct run *r, const struct kernel_mail *mail, struct err *e)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

	r->kernel.copy_from = open(r->step->spaces[0].path, flags);
	r->kernel.copy_to = open(mail->copy_to, flags);
	if (r->kernel.copy_from < 0 || r->kernel.copy_to < 0)
		return err_sys(e, errno, "the workspaces of a fork");
	return 0;
}

static int begin(struct run *r, struct err *e)
{
	const struct kernel_mail *mail = kernel_mail_in(r->order->mailbox);
	const bool fork = r->kernel.forking;
	struct checkpoint_order o = {.cp = r->order->kernel->checkpoints,
	    .id = fork ? mail->copy_id : r->kernel.id,
	    .box = &r->box,
	    .platform = r->order->config->runsc_platform,
	    .stamp = &r->kernel.stamp,
	    .timeout_ms = SAVE_MS,
	    .go_on = fork,
	    .about = {mail->about, mail->about_len},
	    .copy_from = -1,
	    .copy_to = -1};
	uint64_t bytes;

	if (r->phase != PHASE_IDLE || r->step == NULL)
		return err_set(e, ERR_SESSION_BUSY, EBUSY, "a step runs");
	if (!r->kernel.stamped)
		return err_set(e, ERR_KERNEL_UNSUPPORTED, ENOTSUP,
		    "what it depends on was not known at its start");
	if (mail->about_len > sizeof mail->about)
		return err_set(e, ERR_INTERNAL, EINVAL, "a broken word");
	if (network_rest(r, e) < 0)
		return -e->code;
	o.max_bytes = room(r);
	o.promised_bytes = bytes = image_bytes(r);
	if (fork && open_copies(r, mail, e) < 0)
		return -e->code;
	if (fork) {
		o.copy_from = r->kernel.copy_from;
		o.copy_to = r->kernel.copy_to;
		o.copy_max_bytes = copy_bytes(r);
		bytes += o.copy_max_bytes;
	}
	o.min_free_bytes =
	    bytes + ((uint64_t)r->order->config->min_free_disk_gb << 30);
	if (promise(r, bytes, e) < 0)
		return -e->code;
	return checkpoint_save_begin(&o, &r->kernel.save, e);
}

void kernel_save(struct run *r, bool fork)
{
	struct err e;

	r->kernel.forking = fork;
	if (begin(r, &e) < 0) {
		close_copies(r);
		if (r->phase == PHASE_IDLE)
			stays(r, &e);
		return;
	}
	/* Its sentry writes it. */
	kernel_wake(r);
	/* From now on one may be there, even if that is not known for sure. */
	if (!fork)
		r->kernel.restored = true;
	quota_save(&r->quota, r->limits.cpus_milli);
	r->phase = PHASE_SAVE;
	r->begun_us = clock_us();
	r->deadline_us = r->kernel.save.deadline_us;
}

void kernel_save_event(struct run *r)
{
	struct checkpoint_saved saved = {0};
	struct err e;
	int rc;

	if (r->phase != PHASE_SAVE)
		return;
	rc = checkpoint_save_end(&r->kernel.save, &saved, &e);
	if (rc == -EAGAIN) {
		/* Until it stood, it may have opened a connection. */
		rc = network_rest(r, &e);
		checkpoint_save_answer(&r->kernel.save, rc < 0 ? &e : NULL);
		return;
	}
	if (rc == -EINPROGRESS) {
		r->deadline_us = r->kernel.save.deadline_us;
		return;
	}
	close_copies(r);
	r->result.boot_us = clock_us() - r->begun_us;
	if (rc == -ETIMEDOUT) {
		run_end(r, RUN_END_FAILED, e.msg);
		return;
	}
	if (rc < 0) {
		stays(r, &e);
		return;
	}
	r->kernel.saved_bytes = saved.bytes;
	r->kernel.copied = saved.copied;
	if (r->kernel.forking) {
		kernel_go_idle(r);
		run_report(r, KERNEL_WORD_FORKED);
		return;
	}
	r->kernel.saved = true;
	run_end(r, RUN_END_EXIT, "");
}

void kernel_save_cancel(struct run *r)
{
	checkpoint_save_cancel(&r->kernel.save);
	close_copies(r);
}
