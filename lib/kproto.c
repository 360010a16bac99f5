/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kproto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/limits.h"
#include "lib/payload.h"
#include "lib/proto.h"

#define EXIT_MAX 255u

void guest_kernel_encode(const struct guest_kernel *k, struct buf *out)
{
	put_blob(out, &k->language);
	put_blob(out, &k->cwd);
	put_blobs(out, k->run, k->run_count);
	put_blobs(out, k->env, k->env_count);
	put_blobs(out, k->preload, k->preload_count);
	put_u32(out, k->pids);
	put_u64(out, k->file_bytes);
}

static int guest_kernel_read(
    struct reader *r, struct guest_kernel *k, struct err *e)
{
	const char *const what = "guest kernel";
	int rc;

	k->language = get_blob(r);
	k->cwd = get_blob(r);
	if ((rc = get_strings(r, LIMIT_ARGV, what, &k->run, &k->run_count, e)) <
		0 ||
	    (rc = get_strings(r, LIMIT_ENV, what, &k->env, &k->env_count, e)) <
		0 ||
	    (rc = get_strings(r, LIMIT_PRELOAD, what, &k->preload,
		 &k->preload_count, e)) < 0)
		return rc;
	k->pids = get_u32(r);
	k->file_bytes = get_u64(r);
	if ((rc = payload_finish(r, what, e)) < 0 ||
	    (rc = payload_check_program(what, &k->cwd, k->run, k->run_count,
		 k->env, k->env_count, e)) < 0)
		return rc;
	if (k->pids < LIMIT_PIDS_MIN || k->pids > LIMIT_PIDS_MAX)
		return payload_refuse(e, what, "limits out of bounds");
	return payload_check_modules(what, k->preload, k->preload_count, e);
}

int guest_kernel_decode(
    const uint8_t *payload, size_t len, struct guest_kernel *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct guest_kernel k = {0};
	int rc = guest_kernel_read(&r, &k, e);

	if (rc < 0)
		guest_kernel_done(&k);
	else
		*ret = k;
	return rc;
}

void guest_kernel_done(struct guest_kernel *k)
{
	free(k->run);
	free(k->env);
	free(k->preload);
	*k = (struct guest_kernel){0};
}

void guest_modules_encode(const struct guest_modules *m, struct buf *out)
{
	put_blobs(out, m->names, m->count);
}

int guest_modules_decode(const uint8_t *payload, size_t len,
    struct guest_modules *ret, struct err *e)
{
	const char *const what = "guest modules";
	struct reader r = {payload, len, false};
	struct guest_modules m = {0};
	int rc;

	if ((rc = get_strings(&r, LIMIT_PRELOAD, what, &m.names, &m.count, e)) <
		0 ||
	    (rc = payload_finish(&r, what, e)) < 0 ||
	    (rc = payload_check_modules(what, m.names, m.count, e)) < 0)
		guest_modules_done(&m);
	else
		*ret = m;
	return rc;
}

void guest_modules_done(struct guest_modules *m)
{
	free(m->names);
	*m = (struct guest_modules){0};
}

void guest_step_encode(const struct guest_step *s, struct buf *out)
{
	put_u32(out, s->number);
	put_bool(out, s->display);
	put_u32(out, s->output_bytes);
	put_u32(out, s->entry);
	put_files(out, s->files, s->file_count);
	put_blob(out, &s->stdin_data);
}

static int guest_step_read(
    struct reader *r, struct guest_step *s, struct err *e)
{
	const char *const what = "guest step";
	int rc;

	s->number = get_u32(r);
	s->display = get_bool(r);
	s->output_bytes = get_u32(r);
	s->entry = get_u32(r);
	rc = get_files(r, what, &s->files, &s->file_count, e);
	if (rc < 0)
		return rc;
	s->stdin_data = get_blob(r);
	rc = payload_finish(r, what, e);
	if (rc < 0)
		return rc;
	if (s->entry >= s->file_count)
		return payload_refuse(
		    e, what, "the entry point is none of the files");
	if (s->output_bytes < LIMIT_OUTPUT_MIN ||
	    s->output_bytes > LIMIT_OUTPUT_MAX)
		return payload_refuse(e, what, "limits out of bounds");
	return 0;
}

int guest_step_decode(
    const uint8_t *payload, size_t len, struct guest_step *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct guest_step s = {0};
	int rc = guest_step_read(&r, &s, e);

	if (rc < 0)
		guest_step_done(&s);
	else
		*ret = s;
	return rc;
}

void guest_step_done(struct guest_step *s)
{
	free(s->files);
	*s = (struct guest_step){0};
}

void guest_artifact_encode(const struct guest_artifact *a, struct buf *out)
{
	put_blob(out, &a->type);
	put_bool(out, a->text);
	put_u32(out, a->bytes);
}

static bool is_type_char(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
	       c == '+' || c == '-' || c == '_';
}

/* "image/png"; no parameters, nothing that needs quoting anywhere. */
static bool is_type(const struct blob *s)
{
	size_t slash = 0;

	for (size_t i = 0; i < s->len; i++) {
		if (s->data[i] == '/' && slash == 0)
			slash = i;
		else if (!is_type_char(s->data[i]))
			return false;
	}
	return slash > 0 && slash + 1 < s->len && s->len <= LIMIT_MIME_TYPE;
}

/* As the API counts: base64's length of what is no text. */
static uint64_t artifact_size(const struct guest_artifact *a)
{
	return a->text ? a->bytes : ((uint64_t)a->bytes + 2) / 3 * 4;
}

int guest_artifact_decode(const uint8_t *payload, size_t len,
    struct guest_artifact *ret, struct err *e)
{
	const char *const what = "guest artifact";
	struct reader r = {payload, len, false};
	struct guest_artifact a = {0};
	int rc;

	a.type = get_blob(&r);
	a.text = get_bool(&r);
	a.bytes = get_u32(&r);
	rc = payload_finish(&r, what, e);
	if (rc < 0)
		return rc;
	if (!is_type(&a.type))
		return payload_refuse(e, what, "bad type");
	if (artifact_size(&a) > LIMIT_ARTIFACT)
		return payload_refuse(e, what, "too large");
	*ret = a;
	return 0;
}

void guest_step_result_encode(
    const struct guest_step_result *x, struct buf *out)
{
	put_u32(out, x->number);
	put_u32(out, x->exit_code);
	put_bool(out, x->raised);
	put_bool(out, x->interrupted);
	put_bool(out, x->dropped);
	put_u64(out, x->cpu_us);
}

int guest_step_result_decode(const uint8_t *payload, size_t len,
    struct guest_step_result *ret, struct err *e)
{
	const char *const what = "guest step result";
	struct reader r = {payload, len, false};
	struct guest_step_result x = {0};
	int rc;

	x.number = get_u32(&r);
	x.exit_code = get_u32(&r);
	x.raised = get_bool(&r);
	x.interrupted = get_bool(&r);
	x.dropped = get_bool(&r);
	x.cpu_us = get_u64(&r);
	rc = payload_finish(&r, what, e);
	if (rc < 0)
		return rc;
	if (x.exit_code > EXIT_MAX)
		return payload_refuse(e, what, "impossible exit code");
	*ret = x;
	return 0;
}
