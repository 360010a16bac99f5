/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/klink.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/limits.h"

#define CHUNK (64u * 1024)

int klink_open(struct klink *l, int *ret_theirs, struct err *e)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		return err_sys(e, errno, "cannot make a pair of sockets");
	*l = (struct klink){.fd = fds[0]};
	*ret_theirs = fds[1];
	return 0;
}

void klink_start(struct klink *l, const struct guest_kernel *k)
{
	const struct guest_modules m = {k->preload, k->preload_count};
	size_t begun = proto_begin(&l->out, PROTO_GUEST_KERNEL);

	guest_modules_encode(&m, &l->out);
	proto_end(&l->out, begun);
	l->expects_ready = true;
}

void klink_restored(struct klink *l)
{
	proto_put_frame(&l->out, PROTO_GUEST_RESTORED, NULL, 0);
	l->expects_ready = true;
}

/* The files that are to be written: none if the entry is all there is. */
static void put_step_files(struct buf *out, const struct guest_step *s)
{
	const size_t n = s->file_count > 1 ? s->file_count : 0;

	put_u32(out, (uint32_t)n);
	for (size_t i = 0; i < n; i++) {
		const struct job_file *f = &s->files[i];

		put_bytes(out, f->name.data, f->name.len);
		put_bytes(out, f->content.data, f->content.len);
	}
}

void klink_step(struct klink *l, const struct guest_step *s)
{
	const struct job_file *entry = &s->files[s->entry];
	size_t begun = proto_begin(&l->out, PROTO_GUEST_STEP);

	put_u32(&l->out, s->number);
	put_u32(&l->out, l->interrupts);
	put_bool(&l->out, s->display);
	put_u32(&l->out, LIMIT_ARTIFACTS);
	put_u32(&l->out, LIMIT_ARTIFACT);
	put_bytes(&l->out, entry->name.data, entry->name.len);
	put_bytes(&l->out, entry->content.data, entry->content.len);
	put_step_files(&l->out, s);
	proto_end(&l->out, begun);
	l->stepping = true;
	l->started = !l->tells_start;
	l->step = s->number;
	l->artifacts = 0;
	l->artifact_left = 0;
}

int klink_write(struct klink *l, struct err *e)
{
	ssize_t n;

	if (l->out.failed)
		return err_sys(e, ENOMEM, "cannot write to the kernel");
	n = send(l->fd, l->out.data, l->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0)
		buf_consume(&l->out, (size_t)n);
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		return err_sys(e, errno, "cannot write to the kernel");
	return 0;
}

int klink_read(struct klink *l, struct err *e)
{
	uint8_t *room = buf_reserve(&l->in, CHUNK);
	ssize_t n;

	if (room == NULL)
		return err_sys(e, ENOMEM, "cannot read from the kernel");
	n = recv(l->fd, room, CHUNK, MSG_DONTWAIT);
	if (n > 0)
		l->in.len += (size_t)n;
	else if (n == 0)
		return err_sys(e, EPIPE, "the kernel closed its socket");
	else if (errno != EAGAIN && errno != EINTR)
		return err_sys(e, errno, "cannot read from the kernel");
	return 0;
}

static int refuse(struct err *e, const char *why)
{
	return err_set(e, ERR_INTERNAL, EPROTO, "the kernel sent %s", why);
}

static int take_ready(struct klink *l, const uint8_t *payload, size_t len,
    struct buf *to, enum klink_event *ret, struct err *e)
{
	struct guest_modules m;
	int rc;

	if (!l->expects_ready)
		return refuse(e, "that it is ready, unasked");
	rc = guest_modules_decode(payload, len, &m, e);
	if (rc < 0)
		return rc;
	guest_modules_done(&m);
	l->expects_ready = false;
	proto_put_frame(to, PROTO_GUEST_KERNEL_READY, payload, len);
	*ret = KLINK_READY;
	return 0;
}

static int take_started(
    struct klink *l, size_t len, enum klink_event *ret, struct err *e)
{
	if (!l->stepping || l->started || len > 0)
		return refuse(e, "the start of a step out of place");
	l->started = true;
	*ret = KLINK_STARTED;
	return 0;
}

static int take_artifact(struct klink *l, const uint8_t *payload, size_t len,
    struct buf *to, struct err *e)
{
	struct guest_artifact a;
	int rc;

	if (!l->stepping || l->artifact_left > 0 ||
	    l->artifacts >= LIMIT_ARTIFACTS)
		return refuse(e, "an artifact out of place");
	rc = guest_artifact_decode(payload, len, &a, e);
	if (rc < 0)
		return rc;
	l->artifacts++;
	l->artifact_left = a.bytes;
	proto_put_frame(to, PROTO_GUEST_ARTIFACT, payload, len);
	return 0;
}

static int take_artifact_data(struct klink *l, const uint8_t *payload,
    size_t len, struct buf *to, struct err *e)
{
	if (!l->stepping || len == 0 || len > l->artifact_left)
		return refuse(e, "bytes of no artifact");
	l->artifact_left -= (uint32_t)len;
	proto_put_frame(to, PROTO_GUEST_ARTIFACT_DATA, payload, len);
	return 0;
}

static int take_done(struct klink *l, const uint8_t *payload, size_t len,
    enum klink_event *ret, struct guest_step_result *ret_result, struct err *e)
{
	int rc = guest_step_result_decode(payload, len, ret_result, e);

	if (rc < 0)
		return rc;
	if (!l->stepping || ret_result->number != l->step ||
	    l->artifact_left > 0)
		return refuse(e, "the end of a step out of place");
	l->stepping = false;
	*ret = KLINK_DONE;
	return 0;
}

int klink_next(struct klink *l, struct buf *to, enum klink_event *ret,
    struct guest_step_result *ret_result, struct err *e)
{
	const uint8_t *payload;
	enum proto_type type;
	size_t len;
	ssize_t taken =
	    proto_next(l->in.data, l->in.len, &type, &payload, &len);
	int rc;

	*ret = KLINK_NONE;
	if (taken == 0)
		return 0;
	if (taken < 0)
		return refuse(e, "what is no frame");
	*ret = KLINK_FORWARD;
	if (type == PROTO_GUEST_KERNEL_READY)
		rc = take_ready(l, payload, len, to, ret, e);
	else if (type == PROTO_GUEST_STARTED)
		rc = take_started(l, len, ret, e);
	else if (type == PROTO_GUEST_ARTIFACT)
		rc = take_artifact(l, payload, len, to, e);
	else if (type == PROTO_GUEST_ARTIFACT_DATA)
		rc = take_artifact_data(l, payload, len, to, e);
	else if (type == PROTO_GUEST_STEP_DONE)
		rc = take_done(l, payload, len, ret, ret_result, e);
	else
		rc = refuse(e, "a frame that is not its to send");
	buf_consume(&l->in, (size_t)taken);
	return rc;
}

void klink_done(struct klink *l)
{
	if (l->fd >= 0)
		(void)close(l->fd);
	l->fd = -1;
	buf_free(&l->in);
	buf_free(&l->out);
}
