/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "lib/job.h"
#include "lib/kernelproto.h"
#include "lib/kproto.h"
#include "lib/path.h"
#include "lib/proto.h"
#include "lib/status.h"
#include "lib/wsproto.h"
#include "tests/fuzz/fuzz.h"

/* What was decoded encodes to the very bytes that it came from. */
static void require_same(
    const struct buf *b, const uint8_t *payload, size_t len)
{
	require(!b->failed);
	require(b->len == len);
	require(memcmp(b->data, payload, len) == 0);
}

static void require_failed(const struct err *e)
{
	require(e->kind == ERR_INTERNAL || e->kind == ERR_INVALID_FILE);
	require(e->msg[0] != '\0');
}

static void require_names(const struct job_file *f, size_t n)
{
	struct err e;

	require(n <= LIMIT_FILES);
	for (size_t i = 0; i < n; i++)
		require(path_check_name((const char *)f[i].name.data,
			    f[i].name.len, &e) == 0);
}

static void require_strings(const struct blob *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		require(
		    s[i].len == 0 || memchr(s[i].data, '\0', s[i].len) == NULL);
}

static void try_job(const uint8_t *payload, size_t len)
{
	cleanup_buf struct buf b = {0};
	struct limits clamped;
	struct job j;
	struct err e;

	if (job_decode(payload, len, &j, &e) < 0) {
		require_failed(&e);
		return;
	}
	require(j.entry < j.file_count && j.arg_count <= LIMIT_ARGS);
	require_names(j.files, j.file_count);
	require_strings(j.args, j.arg_count);
	require(j.session.len <= LIMIT_ID && j.volume.len <= LIMIT_ID);
	clamped = j.limits;
	limits_clamp(&clamped);
	require(clamped.memory_bytes == j.limits.memory_bytes);
	require(clamped.pids == j.limits.pids);
	require(j.limits.wall_time_ms <= LIMIT_KERNEL_WALL_MAX_MS);
	require(j.kernel || clamped.wall_time_ms == j.limits.wall_time_ms);
	job_encode(&j, &b);
	require_same(&b, payload, len);
	job_done(&j);
}

static void try_guest_job(const uint8_t *payload, size_t len)
{
	cleanup_buf struct buf b = {0};
	struct guest_job j;
	struct err e;

	if (guest_job_decode(payload, len, &j, &e) < 0) {
		require_failed(&e);
		return;
	}
	require(j.run_count > 0 && j.run_count <= LIMIT_ARGV);
	require_names(j.files, j.file_count);
	require_strings(j.run, j.run_count);
	require_strings(j.compile, j.compile_count);
	require_strings(j.env, j.env_count);
	guest_job_encode(&j, &b);
	require_same(&b, payload, len);
	guest_job_done(&j);
}

static void try_guest_warm(const uint8_t *payload, size_t len)
{
	cleanup_buf struct buf b = {0};
	struct guest_warmed warmed;
	struct guest_warm w;
	struct err e;

	if (guest_warm_decode(payload, len, &w, &e) == 0) {
		require(w.run_count > 0 && w.run_count <= LIMIT_ARGV);
		require(w.preload_count <= LIMIT_PRELOAD);
		require(path_check_name(
			    (const char *)w.entry.data, w.entry.len, &e) == 0);
		require_strings(w.run, w.run_count);
		require_strings(w.env, w.env_count);
		require_strings(w.preload, w.preload_count);
		guest_warm_encode(&w, &b);
		require_same(&b, payload, len);
		guest_warm_done(&w);
	} else {
		require_failed(&e);
	}
	buf_clear(&b);
	if (guest_warmed_decode(payload, len, &warmed, &e) == 0) {
		require(warmed.missing_count <= LIMIT_PRELOAD);
		require(warmed.why.len <= sizeof(e.msg));
		require_strings(warmed.missing, warmed.missing_count);
		guest_warmed_encode(&warmed, &b);
		require_same(&b, payload, len);
		guest_warmed_done(&warmed);
	} else {
		require_failed(&e);
	}
}

static void try_guest_kernel(const uint8_t *payload, size_t len)
{
	cleanup_buf struct buf b = {0};
	struct guest_kernel k;
	struct err e;

	if (guest_kernel_decode(payload, len, &k, &e) < 0) {
		require_failed(&e);
		return;
	}
	require(k.run_count > 0 && k.run_count <= LIMIT_ARGV);
	require(k.preload_count <= LIMIT_PRELOAD);
	require(k.pids <= LIMIT_PIDS_MAX);
	require_strings(k.run, k.run_count);
	require_strings(k.env, k.env_count);
	guest_kernel_encode(&k, &b);
	require_same(&b, payload, len);
	guest_kernel_done(&k);
}

static void try_guest_step(const uint8_t *payload, size_t len)
{
	cleanup_buf struct buf b = {0};
	struct guest_step s;
	struct err e;

	if (guest_step_decode(payload, len, &s, &e) < 0) {
		require_failed(&e);
		return;
	}
	require(s.entry < s.file_count);
	require(s.output_bytes <= LIMIT_OUTPUT_MAX);
	require_names(s.files, s.file_count);
	guest_step_encode(&s, &b);
	require_same(&b, payload, len);
	guest_step_done(&s);
}

/* What a kernel's process tells init: hostile bytes for sure. */
static void try_kernel_says(const uint8_t *payload, size_t len)
{
	cleanup_buf struct buf b = {0};
	struct guest_step_result x;
	struct guest_artifact a;
	struct guest_modules m;
	struct err e;

	if (guest_modules_decode(payload, len, &m, &e) == 0) {
		require(m.count <= LIMIT_PRELOAD);
		require_strings(m.names, m.count);
		guest_modules_encode(&m, &b);
		require_same(&b, payload, len);
		guest_modules_done(&m);
	}
	buf_clear(&b);
	if (guest_artifact_decode(payload, len, &a, &e) == 0) {
		require(a.bytes <= LIMIT_ARTIFACT);
		require(a.type.len > 2 && a.type.len <= LIMIT_MIME_TYPE);
		guest_artifact_encode(&a, &b);
		require_same(&b, payload, len);
	}
	buf_clear(&b);
	if (guest_step_result_decode(payload, len, &x, &e) == 0) {
		require(x.exit_code <= 255);
		guest_step_result_encode(&x, &b);
		require_same(&b, payload, len);
	}
}

static void try_small(const uint8_t *payload, size_t len)
{
	cleanup_buf struct buf b = {0};
	struct guest_exit x;
	struct run_result res;
	struct runner_status status;
	struct err e;

	if (guest_exit_decode(payload, len, &x, &e) == 0) {
		require(x.exit_code <= 255);
		guest_exit_encode(&x, &b);
		require_same(&b, payload, len);
	}
	buf_clear(&b);
	if (run_result_decode(payload, len, &res, &e) == 0) {
		require(res.memory_peak_bytes >= -1);
		run_result_encode(&res, &b);
		require_same(&b, payload, len);
	}
	buf_clear(&b);
	if (runner_status_decode(payload, len, &status, &e) == 0) {
		require(strlen(status.reason) < sizeof(status.reason));
		runner_status_encode(&status, &b);
		require_same(&b, payload, len);
	}
}

static void try_workspace(const uint8_t *payload, size_t len)
{
	cleanup_buf struct buf b = {0};
	struct ws_request q;
	struct ws_commit c;
	struct ws_info i;
	struct err e;

	if (ws_request_decode(payload, len, &q, &e) == 0) {
		require(q.op == WS_LIST || ws_id_ok(&q.id));
		ws_request_encode(&q, &b);
		require_same(&b, payload, len);
	}
	buf_clear(&b);
	if (ws_commit_decode(payload, len, &c, &e) == 0) {
		ws_commit_encode(&c, &b);
		require_same(&b, payload, len);
	}
	buf_clear(&b);
	if (ws_info_decode(payload, len, &i, &e) == 0) {
		ws_info_encode(&i, &b);
		require_same(&b, payload, len);
	}
}

static void try_kernel(const uint8_t *payload, size_t len)
{
	cleanup_buf struct buf b = {0};
	struct kernel_request q;
	struct kernel_info i;
	struct err e;

	if (kernel_request_decode(payload, len, &q, &e) == 0) {
		require(ws_id_ok(&q.id) && ws_id_ok(&q.request_id));
		require((q.op == KERNEL_FORK) == (q.new_id.len > 0));
		require_strings(q.allow, q.allow_count);
		kernel_request_encode(&q, &b);
		require_same(&b, payload, len);
		kernel_request_done(&q);
	}
	buf_clear(&b);
	if (kernel_info_decode(payload, len, &i, &e) == 0) {
		require(strlen(i.reason) < sizeof(i.reason));
		kernel_info_encode(&i, &b);
		require_same(&b, payload, len);
	}
}

static void try_lists(const uint8_t *payload, size_t len)
{
	struct reader r = {payload, len, false};
	cleanup_buf struct buf b = {0};
	struct ws_entry x;
	struct blob id;
	struct err e;
	int rc;

	while ((rc = ws_entry_next(&r, &x, &e)) > 0) {
		require(x.name.len > 0 && x.name.len <= LIMIT_NAME_COMPONENT);
		require(memchr(x.name.data, '/', x.name.len) == NULL);
		ws_entry_put(&x, &b);
	}
	if (rc == 0 && len > 0)
		require_same(&b, payload, len);
	r = (struct reader){payload, len, false};
	while (ws_id_next(&r, &id, &e) > 0)
		require(ws_id_ok(&id));
}

static void try_payload(const uint8_t *payload, size_t len)
{
	try_workspace(payload, len);
	try_kernel(payload, len);
	try_lists(payload, len);
	try_job(payload, len);
	try_guest_job(payload, len);
	try_guest_warm(payload, len);
	try_guest_kernel(payload, len);
	try_guest_step(payload, len);
	try_kernel_says(payload, len);
	try_small(payload, len);
}

/* The input as a stream of frames; each payload goes through every decoder. */
static void try_frames(const uint8_t *data, size_t size)
{
	cleanup_buf struct buf again = {0};
	enum proto_type type;
	const uint8_t *payload;
	size_t len;
	ssize_t n;

	while ((n = proto_next(data, size, &type, &payload, &len)) > 0) {
		require((size_t)n == PROTO_HEADER + len && (size_t)n <= size);
		require(payload == data + PROTO_HEADER);
		buf_clear(&again);
		proto_put_frame(&again, type, payload, len);
		require_same(&again, data, (size_t)n);
		try_payload(payload, len);
		data += n;
		size -= (size_t)n;
	}
	require(n == 0 || n == -EPROTO);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	try_frames(data, size);
	try_payload(data, size);
	return 0;
}
