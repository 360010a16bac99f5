/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hostname.h"
#include "lib/path.h"
#include "lib/payload.h"
#include "lib/proto.h"

static bool limits_within(const struct job *j)
{
	const struct limits *l = &j->limits;
	struct limits c = *l;

	limits_clamp(&c);
	if (j->kernel && l->wall_time_ms >= LIMIT_WALL_MIN_MS &&
	    l->wall_time_ms <= LIMIT_KERNEL_WALL_MAX_MS)
		c.wall_time_ms = l->wall_time_ms;
	return c.memory_bytes == l->memory_bytes &&
	       c.cpus_milli == l->cpus_milli && c.pids == l->pids &&
	       c.output_bytes == l->output_bytes &&
	       c.wall_time_ms == l->wall_time_ms;
}

void job_encode(const struct job *j, struct buf *out)
{
	put_blob(out, &j->request_id);
	put_blob(out, &j->runtime);
	put_blob(out, &j->version);
	put_u64(out, j->limits.memory_bytes);
	put_u32(out, j->limits.cpus_milli);
	put_u32(out, j->limits.pids);
	put_u32(out, j->limits.output_bytes);
	put_u32(out, j->limits.wall_time_ms);
	put_bool(out, j->network);
	put_u32(out, j->entry);
	put_files(out, j->files, j->file_count);
	put_blobs(out, j->args, j->arg_count);
	put_blob(out, &j->stdin_data);
	put_blob(out, &j->session);
	put_blob(out, &j->volume);
	put_blobs(out, j->allow, j->allow_count);
	put_bool(out, j->kernel);
	put_bool(out, j->display);
}

static int job_check(const struct job *j, struct err *e)
{
	if (!blob_is_id(&j->request_id))
		return payload_refuse(e, "job", "bad request id");
	if (!blob_is_word(&j->runtime) || !blob_is_word(&j->version))
		return payload_refuse(e, "job", "bad runtime or version");
	if (!limits_within(j))
		return payload_refuse(e, "job", "limits out of bounds");
	if (j->file_count == 0)
		return payload_refuse(e, "job", "no file");
	if (j->entry >= j->file_count)
		return payload_refuse(
		    e, "job", "the entry point is none of the files");
	if ((j->session.len > 0 && !blob_is_id(&j->session)) ||
	    (j->volume.len > 0 && !blob_is_id(&j->volume)))
		return payload_refuse(e, "job", "bad session or volume");
	if ((j->volume.len > 0 || j->kernel) && j->session.len == 0)
		return payload_refuse(
		    e, "job", "a volume or a kernel without a session");
	if (j->display && !j->kernel)
		return payload_refuse(e, "job", "display without a kernel");
	if (j->allow_count > 0 && !j->network)
		return payload_refuse(
		    e, "job", "names to reach without a network");
	for (size_t i = 0; i < j->allow_count; i++)
		if (hostname_check_pattern(
			(const char *)j->allow[i].data, j->allow[i].len, e) < 0)
			return payload_refuse(e, "job", "bad host name");
	return 0;
}

static int job_read(struct reader *r, struct job *j, struct err *e)
{
	int rc;

	j->request_id = get_blob(r);
	j->runtime = get_blob(r);
	j->version = get_blob(r);
	j->limits.memory_bytes = get_u64(r);
	j->limits.cpus_milli = get_u32(r);
	j->limits.pids = get_u32(r);
	j->limits.output_bytes = get_u32(r);
	j->limits.wall_time_ms = get_u32(r);
	j->network = get_bool(r);
	j->entry = get_u32(r);
	rc = get_files(r, "job", &j->files, &j->file_count, e);
	if (rc < 0)
		return rc;
	rc =
	    get_strings(r, LIMIT_ARGS, "job: args", &j->args, &j->arg_count, e);
	if (rc < 0)
		return rc;
	j->stdin_data = get_blob(r);
	j->session = get_blob(r);
	j->volume = get_blob(r);
	rc = get_strings(
	    r, LIMIT_ALLOW, "job: allow", &j->allow, &j->allow_count, e);
	if (rc < 0)
		return rc;
	j->kernel = get_bool(r);
	j->display = get_bool(r);
	rc = payload_finish(r, "job", e);
	return rc < 0 ? rc : job_check(j, e);
}

int job_decode(
    const uint8_t *payload, size_t len, struct job *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct job j = {0};
	int rc = job_read(&r, &j, e);

	if (rc < 0)
		job_done(&j);
	else
		*ret = j;
	return rc;
}

void job_done(struct job *j)
{
	free(j->allow);
	free(j->files);
	free(j->args);
	*j = (struct job){0};
}

void guest_job_encode(const struct guest_job *j, struct buf *out)
{
	put_blob(out, &j->cwd);
	put_blobs(out, j->compile, j->compile_count);
	put_blobs(out, j->run, j->run_count);
	put_blobs(out, j->env, j->env_count);
	put_files(out, j->files, j->file_count);
	put_blob(out, &j->stdin_data);
	put_u32(out, j->pids);
	put_u32(out, j->output_bytes);
	put_u64(out, j->tmpfs_bytes);
}

static int guest_job_check(const struct guest_job *j, struct err *e)
{
	int rc = payload_check_program("guest job", &j->cwd, j->run,
	    j->run_count, j->env, j->env_count, e);

	if (rc < 0)
		return rc;
	if (j->compile_count > 0 && j->compile[0].len == 0)
		return payload_refuse(
		    e, "guest job", "nothing to compile with");
	if (j->pids < LIMIT_PIDS_MIN || j->pids > LIMIT_PIDS_MAX ||
	    j->output_bytes < LIMIT_OUTPUT_MIN ||
	    j->output_bytes > LIMIT_OUTPUT_MAX)
		return payload_refuse(e, "guest job", "limits out of bounds");
	return 0;
}

static int guest_job_read(struct reader *r, struct guest_job *j, struct err *e)
{
	int rc;

	j->cwd = get_blob(r);
	rc = get_strings(r, LIMIT_ARGV, "guest job: compile", &j->compile,
	    &j->compile_count, e);
	if (rc < 0)
		return rc;
	rc = get_strings(
	    r, LIMIT_ARGV, "guest job: run", &j->run, &j->run_count, e);
	if (rc < 0)
		return rc;
	rc = get_strings(
	    r, LIMIT_ENV, "guest job: env", &j->env, &j->env_count, e);
	if (rc < 0)
		return rc;
	rc = get_files(r, "guest job", &j->files, &j->file_count, e);
	if (rc < 0)
		return rc;
	j->stdin_data = get_blob(r);
	j->pids = get_u32(r);
	j->output_bytes = get_u32(r);
	j->tmpfs_bytes = get_u64(r);
	rc = payload_finish(r, "guest job", e);
	return rc < 0 ? rc : guest_job_check(j, e);
}

int guest_job_decode(
    const uint8_t *payload, size_t len, struct guest_job *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct guest_job j = {0};
	int rc = guest_job_read(&r, &j, e);

	if (rc < 0)
		guest_job_done(&j);
	else
		*ret = j;
	return rc;
}

void guest_job_done(struct guest_job *j)
{
	free(j->compile);
	free(j->run);
	free(j->env);
	free(j->files);
	*j = (struct guest_job){0};
}

void guest_warm_encode(const struct guest_warm *w, struct buf *out)
{
	put_blob(out, &w->entry);
	put_blob(out, &w->cwd);
	put_blobs(out, w->run, w->run_count);
	put_blobs(out, w->env, w->env_count);
	put_blobs(out, w->preload, w->preload_count);
	put_bool(out, w->compiles);
}

static int guest_warm_read(
    struct reader *r, struct guest_warm *w, struct err *e)
{
	const char *const what = "guest warm";
	int rc;

	w->entry = get_blob(r);
	w->cwd = get_blob(r);
	if ((rc = get_strings(r, LIMIT_ARGV, what, &w->run, &w->run_count, e)) <
		0 ||
	    (rc = get_strings(r, LIMIT_ENV, what, &w->env, &w->env_count, e)) <
		0 ||
	    (rc = get_strings(r, LIMIT_PRELOAD, what, &w->preload,
		 &w->preload_count, e)) < 0)
		return rc;
	w->compiles = get_bool(r);
	if ((rc = payload_finish(r, what, e)) < 0 ||
	    (rc = payload_check_program(what, &w->cwd, w->run, w->run_count,
		 w->env, w->env_count, e)) < 0)
		return rc;
	if (path_check_name((const char *)w->entry.data, w->entry.len, e) < 0)
		return err_wrap(e, "%s: entry", what);
	return payload_check_modules(what, w->preload, w->preload_count, e);
}

int guest_warm_decode(
    const uint8_t *payload, size_t len, struct guest_warm *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct guest_warm w = {0};
	int rc = guest_warm_read(&r, &w, e);

	if (rc < 0)
		guest_warm_done(&w);
	else
		*ret = w;
	return rc;
}

void guest_warm_done(struct guest_warm *w)
{
	free(w->run);
	free(w->env);
	free(w->preload);
	*w = (struct guest_warm){0};
}

void guest_warmed_encode(const struct guest_warmed *w, struct buf *out)
{
	put_bool(out, w->waiting);
	put_blobs(out, w->missing, w->missing_count);
	put_blob(out, &w->why);
}

static int guest_warmed_read(
    struct reader *r, struct guest_warmed *w, struct err *e)
{
	const char *const what = "guest warmed";
	int rc;

	w->waiting = get_bool(r);
	rc = get_strings(
	    r, LIMIT_PRELOAD, what, &w->missing, &w->missing_count, e);
	if (rc < 0)
		return rc;
	w->why = get_blob(r);
	rc = payload_finish(r, what, e);
	if (rc < 0)
		return rc;
	if (w->why.len > sizeof(e->msg) || blob_has_nul(&w->why))
		return payload_refuse(e, what, "bad reason");
	return payload_check_modules(what, w->missing, w->missing_count, e);
}

int guest_warmed_decode(
    const uint8_t *payload, size_t len, struct guest_warmed *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct guest_warmed w = {0};
	int rc = guest_warmed_read(&r, &w, e);

	if (rc < 0)
		guest_warmed_done(&w);
	else
		*ret = w;
	return rc;
}

void guest_warmed_done(struct guest_warmed *w)
{
	free(w->missing);
	*w = (struct guest_warmed){0};
}

/* Exit codes are a shell's; Linux knows the signals 1 to 64. */
#define EXIT_MAX 255u
#define SIGNAL_MAX 64u

void guest_exit_encode(const struct guest_exit *x, struct buf *out)
{
	put_u32(out, x->exit_code);
	put_u32(out, x->signal);
	put_u64(out, x->cpu_us);
	put_bool(out, x->compile_failed);
}

int guest_exit_decode(
    const uint8_t *payload, size_t len, struct guest_exit *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct guest_exit x = {0};
	int rc;

	x.exit_code = get_u32(&r);
	x.signal = get_u32(&r);
	x.cpu_us = get_u64(&r);
	x.compile_failed = get_bool(&r);
	rc = payload_finish(&r, "guest exit", e);
	if (rc < 0)
		return rc;
	if (x.exit_code > EXIT_MAX || x.signal > SIGNAL_MAX ||
	    (x.signal > 0 && x.exit_code != 128 + x.signal))
		return payload_refuse(
		    e, "guest exit", "impossible exit code or signal");
	*ret = x;
	return 0;
}

void run_result_encode(const struct run_result *x, struct buf *out)
{
	put_u32(out, x->exit_code);
	put_u32(out, x->signal);
	put_bool(out, x->timed_out);
	put_bool(out, x->oom_killed);
	put_bool(out, x->stdout_truncated);
	put_bool(out, x->stderr_truncated);
	put_bool(out, x->network);
	put_u64(out, x->duration_us);
	put_u64(out, x->cpu_us);
	put_u64(out, (uint64_t)x->memory_peak_bytes);
	put_u64(out, x->queue_us);
	put_u64(out, x->boot_us);
	put_bool(out, x->warm);
	put_u8(out, (uint8_t)x->kernel);
	put_bool(out, x->raised);
	put_bool(out, x->interrupted);
	put_bool(out, x->artifacts_dropped);
}

int run_result_decode(
    const uint8_t *payload, size_t len, struct run_result *ret, struct err *e)
{
	struct reader r = {payload, len, false};
	struct run_result x = {0};
	uint8_t kernel;
	int rc;

	x.exit_code = get_u32(&r);
	x.signal = get_u32(&r);
	x.timed_out = get_bool(&r);
	x.oom_killed = get_bool(&r);
	x.stdout_truncated = get_bool(&r);
	x.stderr_truncated = get_bool(&r);
	x.network = get_bool(&r);
	x.duration_us = get_u64(&r);
	x.cpu_us = get_u64(&r);
	x.memory_peak_bytes = (int64_t)get_u64(&r);
	x.queue_us = get_u64(&r);
	x.boot_us = get_u64(&r);
	x.warm = get_bool(&r);
	kernel = get_u8(&r);
	x.raised = get_bool(&r);
	x.interrupted = get_bool(&r);
	x.artifacts_dropped = get_bool(&r);
	rc = payload_finish(&r, "run result", e);
	if (rc < 0)
		return rc;
	if (x.exit_code > EXIT_MAX || x.signal > SIGNAL_MAX ||
	    x.memory_peak_bytes < -1 || kernel > RUN_KERNEL_DEAD)
		return payload_refuse(e, "run result", "impossible values");
	x.kernel = (enum run_kernel)kernel;
	*ret = x;
	return 0;
}
