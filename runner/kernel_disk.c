/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on disk, as the loop sees them: told to go there, found there at the
 * start, copied there for a fork. What a checkpoint says `about` its kernel is what
 * the kernel was asked for, and how far its life is.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "lib/payload.h"
#include "runner/server_int.h"

/* Until then a save is over, or its supervisor hangs. */
#define SAVE_MAX_US 90000000u

/* What could not be saved is tried again after so long, then after twice that, and
 * so on: each try writes all of it. */
#define PINNED_US 60000000u
#define PINNED_DOUBLED_MAX 5u

/* To whose kernel could not be fetched. */
#define RETRY_AFTER_S 5u

static struct blob text_blob(const char *s)
{
	return (struct blob){(const uint8_t *)s, strlen(s)};
}

/* ---- about --------------------------------------------------------------- */

static void put_about(struct buf *out, const struct kernel *k, uint64_t now_us)
{
	const struct blob runtime = text_blob(k->runtime);
	const struct blob version = text_blob(k->version);
	const struct blob volume =
	    text_blob(k->volume != NULL ? k->volume->id : "");

	put_u64(out, k->tenant);
	put_u64(out, k->steps);
	put_u64(out, k->life_us + (now_us - k->resident_us));
	put_blob(out, &runtime);
	put_blob(out, &version);
	put_blob(out, &volume);
	put_bool(out, k->network);
	put_bool(out, k->wired);
	put_bytes(out, k->allow.data, k->allow.len);
}

static void get_word(struct reader *r, char ret[LIMIT_ID + 1])
{
	memset(ret, 0, LIMIT_ID + 1);
	get_text(r, ret, LIMIT_ID + 1);
}

/* -EBADMSG: we did not write that. */
static int read_about(
    struct server *s, struct kernel *k, const struct buf *text, struct err *e)
{
	struct reader r = {text->data, text->len, false};
	char volume[LIMIT_ID + 1];
	struct blob id;
	size_t len;
	const uint8_t *allow;

	k->tenant = get_u64(&r);
	k->steps = get_u64(&r);
	k->life_us = get_u64(&r);
	get_word(&r, k->runtime);
	get_word(&r, k->version);
	get_word(&r, volume);
	k->network = get_bool(&r);
	k->wired = get_bool(&r);
	allow = get_bytes(&r, &len);
	if (!reader_done(&r))
		return err_set(e, ERR_INTERNAL, EBADMSG,
		    "what its checkpoint says about it is damaged");
	if (len > 0)
		buf_put(&k->allow, allow, len);
	if (k->allow.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	if (volume[0] == '\0')
		return 0;
	id = text_blob(volume);
	k->volume = ws_table_find(&s->workspaces.table, WS_VOLUME, &id);
	if (k->volume == NULL)
		return err_set(e, ERR_INTERNAL, EBADMSG, "its volume is gone");
	ws_ref(k->volume);
	return 0;
}

/* ---- the start ----------------------------------------------------------- */

static int found(void *arg, const char *id, uint64_t bytes)
{
	struct server *s = arg;
	const struct blob name = text_blob(id);
	struct workspace *w =
	    ws_table_find(&s->workspaces.table, WS_SESSION, &name);
	cleanup_buf struct buf about = {0};
	struct kernel *k = NULL;
	struct err e;

	if (w == NULL) { /* removed, but not to the end */
		if (checkpoint_remove(&s->kernels.checkpoints, id, &e) < 0)
			log_warn("%s", e.msg);
		return 0;
	}
	k = kernel_new(s, w);
	if (k == NULL)
		return -ENOMEM;
	k->state = KERNEL_HIBERNATED;
	kernel_count_checkpoint(s, k, bytes);
	if (checkpoint_about(&s->kernels.checkpoints, id, &about, &e) >= 0 &&
	    read_about(s, k, &about, &e) == 0)
		return 0;
	k->state = KERNEL_DEAD;
	(void)snprintf(k->reason, sizeof k->reason, "%s", e.msg);
	return 0;
}

void kernels_open(struct server *s)
{
	struct kernels *ks = &s->kernels;
	const struct sandbox_spec any = {.runsc = s->config->runsc,
	    .init_path = s->config->init_path,
	    .platform = s->config->runsc_platform,
	    .rootfs = s->config->images_dir};
	struct checkpoint_stamp ignored;
	struct err e;

	/* Without slots, too: what is there counts, and goes with its session. */
	if (!s->workspaces.usable)
		return;
	if (checkpoints_open(&s->workspaces.root, &ks->checkpoints, &e) < 0) {
		log_error("kernels are not put on disk: %s", e.msg);
		return;
	}
	ks->on_disk = true;
	/* The children find it done: the programs' digests. */
	if (s->config->kernel_slots > 0)
		(void)checkpoint_stamp_now(&ks->stamps, &any, &ignored, &e);
	if (checkpoints_sweep(&ks->checkpoints, &e) < 0 ||
	    checkpoints_list(&ks->checkpoints, found, s, &e) < 0)
		log_error("kernels on disk: %s", e.msg);
}

/* ---- what it takes ------------------------------------------------------- */

void kernel_count_checkpoint(struct server *s, struct kernel *k, uint64_t bytes)
{
	k->checkpoint_bytes = bytes;
	ws_set_saved(&s->workspaces.table, k->workspace, bytes);
}

void kernel_look_at_checkpoint(struct server *s, struct kernel *k)
{
	uint64_t bytes = 0;
	struct err e;

	if (s->kernels.on_disk)
		(void)checkpoint_bytes(
		    &s->kernels.checkpoints, k->workspace->id, &bytes, &e);
	kernel_count_checkpoint(s, k, bytes);
}

/* ---- to the disk --------------------------------------------------------- */

bool kernel_may_save(const struct server *s, const struct kernel *k)
{
	return s->kernels.on_disk && k->state == KERNEL_RESIDENT &&
	       !k->ending && !k->saving && !k->workspace->turn.held &&
	       clock_us() >= k->pinned_until_us;
}

static int send_save(struct server *s, struct kernel *k, enum run_control how)
{
	const uint32_t word = how;
	struct worker *w = k->worker;
	struct kernel_mail *mail = kernel_mail_in(w->seat.mailbox);
	struct buf about = {0};
	bool fits;

	(void)s;
	put_about(&about, k, clock_us());
	fits = !about.failed && about.len <= sizeof mail->about;
	if (fits) {
		memcpy(mail->about, about.data, about.len);
		mail->about_len = (uint32_t)about.len;
	}
	buf_free(&about);
	if (!fits || send(w->source.fd, &word, sizeof word,
			 MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof word)
		return -EPIPE; /* just dying: its end is on its way */
	k->saving = true;
	k->saving_us = clock_us();
	w->deadline_us = k->saving_us + SAVE_MAX_US;
	return 0;
}

bool kernel_hibernate(struct server *s, struct kernel *k)
{
	return send_save(s, k, RUN_CONTROL_HIBERNATE) == 0;
}

/* Whoever came meanwhile wants it back. */
void kernel_hibernated(
    struct server *s, struct kernel *k, const struct run_report *r)
{
	struct kernel_status *st = &s->kernels.status;

	k->life_us += clock_us() - k->resident_us;
	k->saving = false;
	k->worker = NULL;
	k->memory_bytes = -1;
	k->state = KERNEL_HIBERNATED;
	k->ending = false;
	kernel_count_checkpoint(s, k, r->saved_bytes);
	k->reason[0] = '\0';
	st->hibernations_total++;
	st->hibernation_us_total += clock_us() - k->saving_us;
	if (kernel_is_wanted(s, k))
		kernel_want(s, k);
}

void kernel_stays(
    struct server *s, struct kernel *k, const struct run_report *r)
{
	k->saving = false;
	if (k->copy != NULL) {
		kernel_fork_ends(s, k, r);
		return;
	}
	kernel_look_at_checkpoint(s, k);
	/* Who was to remove what had been written may have had no time for it. */
	if (r->failure == ERR_INTERNAL)
		workspaces_sweep_soon(&s->workspaces);
	else if (r->failure == ERR_STORAGE_FULL)
		workspaces_recount_if_full(s);
	if (!k->ending)
		k->worker->deadline_us = UINT64_MAX;
	k->pinned_until_us =
	    clock_us() + ((uint64_t)PINNED_US << k->save_failures);
	if (k->save_failures < PINNED_DOUBLED_MAX)
		k->save_failures++;
	(void)snprintf(k->reason, sizeof k->reason, "%s", r->why);
	log_info("the kernel of session %s stays in memory: %s",
	    k->workspace->id, k->reason);
	if (s->draining)
		kernel_stop(s, k, KERNEL_DEATH_EXIT,
		    "the service ended, and it could not be put on disk");
	else
		kernel_serve_waiting(s, k);
}

bool kernel_is_on_disk(const struct server *s, const struct kernel *k)
{
	uint64_t bytes;
	struct err e;

	return s->kernels.on_disk && checkpoint_bytes(&s->kernels.checkpoints,
					 k->workspace->id, &bytes, &e) >= 0;
}

void kernel_fell_back(struct server *s, struct kernel *k)
{
	struct err e;

	log_warn("the kernel of session %s was killed; it goes on from its "
		 "checkpoint",
	    k->workspace->id);
	k->worker = NULL;
	k->online = false;
	k->reason[0] = '\0';
	k->memory_bytes = -1;
	k->state = KERNEL_HIBERNATED;
	/* Who was making another one is dead, and it is nobody's. */
	if (checkpoint_remove_new(
		&s->kernels.checkpoints, k->workspace->id, &e) < 0)
		log_warn("%s", e.msg);
	kernel_look_at_checkpoint(s, k);
	if (kernel_is_wanted(s, k))
		kernel_want(s, k);
}

void kernel_remove_checkpoint(struct server *s, struct kernel *k)
{
	struct err e;

	/* also what is left of one that was being made */
	if (s->kernels.on_disk && checkpoint_remove(&s->kernels.checkpoints,
				      k->workspace->id, &e) < 0)
		log_warn("%s", e.msg);
	kernel_look_at_checkpoint(s, k);
}

/* What is good for nothing stays so, and what runsc does not take a second time.
 * Else the host is the reason, and the next step may have more luck. */
void kernel_not_restored(
    struct server *s, struct kernel *k, const struct run_report *r)
{
	const bool refused = r != NULL && r->refused != 0;
	const bool lost = (r != NULL && r->unrestorable != 0) ||
			  (refused && ++k->refusals > 1);
	const char *why =
	    r != NULL && r->why[0] != '\0' ? r->why : "it was killed";

	k->worker = NULL;
	k->restoring = false;
	k->state = lost ? KERNEL_DEAD : KERNEL_HIBERNATED;
	s->kernels.status.restores_refused_total++;
	log_warn("the kernel of session %s was not restored: %s",
	    k->workspace->id, why);
	if (lost) {
		s->kernels.status.deaths_total[KERNEL_DEATH_RESTORE]++;
		(void)snprintf(k->reason, sizeof k->reason,
		    "it could not be restored: %.200s", why);
	}
	kernel_fail_waiting(s, k, lost ? ERR_KERNEL_DEAD : ERR_SANDBOX_FAILED,
	    lost ? 0 : RETRY_AFTER_S, lost ? k->reason : why);
}

/* ---- a fork -------------------------------------------------------------- */

static int make_copy(struct server *s, struct kernel *k, const struct blob *id,
    struct kernel_mail *mail, struct err *e)
{
	struct ws_table *t = &s->workspaces.table;
	struct workspace *w;
	struct kernel *copy;

	if (workspaces_room(s, e) < 0)
		return -ENOSPC;
	if (ws_table_find(t, WS_SESSION, id) != NULL)
		return err_set(e, ERR_INTERNAL, EEXIST,
		    "there is a session of that id already");
	w = ws_table_add(t, WS_SESSION, id, e);
	if (w == NULL)
		return -ENOSPC;
	copy = kernel_new(s, w);
	if (copy == NULL || workspaces_make(s, w, e) < 0 ||
	    ws_dir_path(&s->workspaces.root, w, mail->copy_to,
		sizeof mail->copy_to, e) < 0) {
		if (copy != NULL)
			kernel_free(s, copy);
		ws_table_remove(t, w);
		return err_set(e, ERR_INTERNAL, ENOMEM, "no room for a fork");
	}
	(void)snprintf(copy->runtime, sizeof copy->runtime, "%s", k->runtime);
	(void)snprintf(copy->version, sizeof copy->version, "%s", k->version);
	(void)snprintf(mail->copy_id, sizeof mail->copy_id, "%s", w->id);
	copy->tenant = k->tenant;
	copy->network = k->network;
	copy->wired = k->wired;
	copy->steps = k->steps;
	copy->life_us = k->life_us;
	buf_put(&copy->allow, k->allow.data, k->allow.len);
	k->copy = copy;
	if (!copy->allow.failed)
		return 0;
	kernel_undo_fork(s, k);
	return err_set(e, ERR_INTERNAL, ENOMEM, "no room for a fork");
}

void kernel_fork(struct server *s, struct client *c, struct kernel *k)
{
	struct kernel_mail *mail = kernel_mail_in(k->worker->seat.mailbox);
	const struct blob id = text_blob(c->fork_id);
	struct err e;

	/* A volume is one session's at a time. */
	if (k->volume != NULL)
		(void)err_set(&e, ERR_VOLUME_BUSY, EBUSY,
		    "a session with a volume cannot be forked");
	else if (!s->kernels.on_disk)
		(void)err_set(&e, ERR_KERNEL_UNSUPPORTED, ENOTSUP,
		    "this service does not save kernels");
	else if (k->saving || k->copy != NULL)
		(void)err_set(
		    &e, ERR_SESSION_BUSY, EBUSY, "the session is being saved");
	else if (make_copy(s, k, &id, mail, &e) == 0) {
		c->kernel = k;
		c->kernel_wait = KERNEL_WAIT_COPY;
		if (send_save(s, k, RUN_CONTROL_FORK) == 0)
			return;
		kernel_undo_fork(s, k);
		(void)err_set(&e, ERR_KERNEL_DEAD, ESRCH, "it has just ended");
	}
	client_fail(s, c, e.kind, 0, e.msg);
}

void kernel_undo_fork(struct server *s, struct kernel *k)
{
	struct kernel *copy = k->copy;

	k->copy = NULL;
	if (copy == NULL)
		return;
	copy->state = KERNEL_STARTING;
	kernel_remove_checkpoint(s, copy);
	workspaces_discard(s, copy->workspace);
	copy->fresh = true;
	kernel_undo(s, copy);
}

static struct client *fork_client(
    const struct server *s, const struct kernel *k)
{
	struct client *c = NULL;

	TAILQ_FOREACH (c, &s->clients, link)
		if (!c->dead && c->kernel == k &&
		    c->kernel_wait == KERNEL_WAIT_COPY)
			return c;
	return NULL;
}

void kernel_fail_fork(struct server *s, struct kernel *k)
{
	struct client *c = fork_client(s, k);

	kernel_undo_fork(s, k);
	if (c != NULL)
		client_fail(
		    s, c, ERR_KERNEL_DEAD, 0, "it ended while it was copied");
}

static void fork_failed(struct server *s, struct kernel *k, struct client *c,
    const struct run_report *r)
{
	const enum err_kind kind = r->failure < ERR_KIND_COUNT
				       ? (enum err_kind)r->failure
				       : ERR_INTERNAL;

	kernel_undo_fork(s, k);
	if (c != NULL)
		client_fail(s, c, kind, 0, r->why);
}

static void forked(struct server *s, struct kernel *k, struct client *c,
    const struct run_report *r)
{
	struct kernel *copy = k->copy;
	struct ws_account *a =
	    ws_account(&s->workspaces.table, copy->workspace);

	k->copy = NULL;
	copy->state = KERNEL_HIBERNATED;
	ws_account_set(a, atomic_load(&a->state), &r->copied);
	kernel_count_checkpoint(s, copy, r->saved_bytes);
	copy->used_us = clock_us();
	s->kernels.status.forks_total++;
	if (c != NULL)
		kernel_answer(s, c, copy);
}

/* Its checkpoint may have come into being since. */
static void forget_copy(struct server *s, const struct kernel *k)
{
	const struct kernel_mail *mail =
	    kernel_mail_in(k->worker->seat.mailbox);
	struct err e;

	if (checkpoint_remove(&s->kernels.checkpoints, mail->copy_id, &e) < 0)
		log_warn("%s", e.msg);
}

void kernel_fork_ends(
    struct server *s, struct kernel *k, const struct run_report *r)
{
	struct client *c = fork_client(s, k);

	k->saving = false;
	if (!k->ending)
		k->worker->deadline_us = UINT64_MAX;
	k->used_us = clock_us();
	if (k->copy == NULL) /* removed meanwhile */
		forget_copy(s, k);
	else if (r->kernel == KERNEL_WORD_FORKED)
		forked(s, k, c, r);
	else
		fork_failed(s, k, c, r);
	/* What was promised for the copy is counted where it belongs. */
	kernel_look_at_checkpoint(s, k);
	if (s->draining)
		(void)kernel_hibernate(s, k);
	else
		kernel_serve_waiting(s, k);
}
