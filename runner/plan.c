/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/kproto.h"
#include "lib/proto.h"

#define SOURCE_MARK "{source}"
#define SOURCE_DIR "/box/"
#define SOURCE_EXTRA (sizeof(SOURCE_DIR) - 1) /* of what source_prefix() has */

/* What every program finds in its environment, before the registry's own. */
static const char *const base_env[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/tmp",
    "TMPDIR=/tmp",
    "LANG=C.UTF-8",
};
#define BASE_ENV_COUNT (sizeof base_env / sizeof base_env[0])

static size_t list_len(char *const *list)
{
	size_t n = 0;

	while (list != NULL && list[n] != NULL)
		n++;
	return n;
}

static struct blob cstr_blob(const char *s)
{
	return (struct blob){.data = (const uint8_t *)s, .len = strlen(s)};
}

/* Where a program works: a step of a session among what the session keeps. */
static const char *program_cwd(bool step)
{
	return step ? "/workspace" : "/box";
}

/* A name like "-c" is a file, not an option of the interpreter. */
static const char *source_prefix(struct blob source, bool elsewhere)
{
	if (elsewhere)
		return SOURCE_DIR;
	return source.len > 0 && source.data[0] == '-' ? "./" : "";
}

/* One argument; "{source}" alone or inside a longer word, once. */
static int put_arg(const char *arg, const char *prefix, struct blob source,
    struct buf *text, struct blob *ret)
{
	const char *mark = strstr(arg, SOURCE_MARK);
	size_t start = text->len;

	if (mark == NULL) {
		*ret = cstr_blob(arg);
		return 0;
	}
	buf_put(text, arg, (size_t)(mark - arg));
	buf_puts(text, prefix);
	buf_put(text, source.data, source.len);
	buf_puts(text, mark + strlen(SOURCE_MARK));
	if (text->failed)
		return -ENOMEM;
	*ret =
	    (struct blob){.data = text->data + start, .len = text->len - start};
	return 0;
}

static int put_argv(char *const *argv, const char *prefix, struct blob source,
    struct buf *text, struct blob *ret)
{
	for (size_t i = 0; argv != NULL && argv[i] != NULL; i++)
		if (put_arg(argv[i], prefix, source, text, &ret[i]) < 0)
			return -ENOMEM;
	return 0;
}

/* Of a kernel: what pip installs stays in the session. */
static const char *const kernel_env[] = {
    ("PATH=/workspace/.local/bin:"
     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    "HOME=/workspace",
    "PYTHONUSERBASE=/workspace/.local",
    "MPLCONFIGDIR=/tmp/matplotlib",
    "TMPDIR=/tmp",
    "LANG=C.UTF-8",
};
#define KERNEL_ENV_COUNT (sizeof kernel_env / sizeof kernel_env[0])

/* The registry's variable stands for ours of the same name. */
static bool env_overridden(const char *base, char *const *env)
{
	size_t name = (size_t)(strchr(base, '=') - base) + 1;

	for (size_t i = 0; env != NULL && env[i] != NULL; i++)
		if (strncmp(base, env[i], name) == 0)
			return true;
	return false;
}

static size_t put_env(const char *const *base, size_t base_count,
    char *const *env, struct blob *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < base_count; i++)
		if (!env_overridden(base[i], env))
			ret[n++] = cstr_blob(base[i]);
	for (size_t i = 0; env != NULL && env[i] != NULL; i++)
		ret[n++] = cstr_blob(env[i]);
	return n;
}

/* Room for the text that put_arg() makes, so that blobs stay where they are. */
static size_t text_bound(const struct runtime *rt, size_t source_len)
{
	size_t n = 1;

	for (size_t i = 0; i < list_len(rt->compile); i++)
		n += strlen(rt->compile[i]) + SOURCE_EXTRA + source_len;
	for (size_t i = 0; i < list_len(rt->run); i++)
		n += strlen(rt->run[i]) + SOURCE_EXTRA + source_len;
	return n;
}

int plan_guest_warm(const struct runtime *rt, char *const *preload, bool step,
    struct buf *out, struct err *e)
{
	const struct blob source = cstr_blob(rt->source_file);
	cleanup_buf struct buf text = {0};
	cleanup_free struct blob *blobs = NULL;
	const bool compiles = rt->warm == WARM_COMPILER;
	char *const *argv = compiles ? rt->compile : rt->run;
	struct guest_warm w = {.entry = source,
	    .cwd = cstr_blob(program_cwd(step)),
	    .compiles = compiles,
	    .run_count = list_len(argv),
	    .preload_count = list_len(preload)};
	size_t begun;

	if (w.preload_count > LIMIT_PRELOAD)
		return err_set(e, ERR_INTERNAL, E2BIG, "too much to preload");
	blobs = calloc(
	    w.run_count + w.preload_count + BASE_ENV_COUNT + list_len(rt->env),
	    sizeof *blobs);
	if (blobs == NULL ||
	    buf_reserve(&text, text_bound(rt, source.len)) == NULL)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	w.run = blobs;
	w.preload = w.run + w.run_count;
	w.env = w.preload + w.preload_count;
	w.env_count = put_env(base_env, BASE_ENV_COUNT, rt->env, w.env);
	if (put_argv(argv, source_prefix(source, step), source, &text, w.run) <
	    0)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	for (size_t i = 0; i < w.preload_count; i++)
		w.preload[i] = cstr_blob(preload[i]);
	begun = proto_begin(out, PROTO_GUEST_WARM);
	guest_warm_encode(&w, out);
	proto_end(out, begun);
	if (out->failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	return 0;
}

int plan_guest_job(const struct runtime *rt, const struct job *job,
    struct buf *out, struct err *e)
{
	const size_t run_len = list_len(rt->run);
	const size_t compile_len = list_len(rt->compile);
	const struct blob source = job->files[job->entry].name;
	const bool step = job->session.len > 0;
	cleanup_buf struct buf text = {0};
	cleanup_free struct blob *blobs = NULL;
	struct guest_job g = {.cwd = cstr_blob(program_cwd(step)),
	    .compile_count = compile_len,
	    .run_count = run_len + job->arg_count,
	    .files = job->files,
	    .file_count = job->file_count,
	    .stdin_data = job->stdin_data,
	    .pids = job->limits.pids,
	    .output_bytes = job->limits.output_bytes};
	size_t begun;

	blobs = calloc(
	    compile_len + g.run_count + BASE_ENV_COUNT + list_len(rt->env),
	    sizeof *blobs);
	if (blobs == NULL ||
	    buf_reserve(&text, text_bound(rt, source.len)) == NULL)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	g.compile = blobs;
	g.run = blobs + compile_len;
	g.env = g.run + g.run_count;
	g.env_count = put_env(base_env, BASE_ENV_COUNT, rt->env, g.env);
	/* A compile step always works in /box. */
	if (put_argv(rt->compile, source_prefix(source, false), source, &text,
		g.compile) < 0 ||
	    put_argv(
		rt->run, source_prefix(source, step), source, &text, g.run) < 0)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	for (size_t i = 0; i < job->arg_count; i++)
		g.run[run_len + i] = job->args[i];
	begun = proto_begin(out, PROTO_GUEST_JOB);
	guest_job_encode(&g, out);
	proto_end(out, begun);
	if (out->failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	return 0;
}

/* The kernels that isobox-init has, by the name of the interpreter. */
static const char *kernel_language(const struct runtime *rt)
{
	const char *path = rt->run != NULL ? rt->run[0] : NULL;
	const char *name = path != NULL ? strrchr(path, '/') : NULL;

	if (name == NULL || !rt->kernel)
		return NULL;
	if (strncmp(name, "/python", 7) == 0)
		return "python";
	return strcmp(name, "/node") == 0 ? "node" : NULL;
}

int plan_guest_kernel(
    const struct runtime *rt, uint32_t pids, struct buf *out, struct err *e)
{
	const char *language = kernel_language(rt);
	cleanup_free struct blob *env = NULL;
	struct blob run[2];
	struct guest_kernel k = {.cwd = cstr_blob(program_cwd(true)),
	    .run = run,
	    .run_count = 2,
	    .pids = pids};
	size_t begun;

	if (language == NULL)
		return err_set(e, ERR_KERNEL_UNSUPPORTED, ENOTSUP,
		    "%s has no kernel", rt->name);
	env = calloc(KERNEL_ENV_COUNT + list_len(rt->env), sizeof *env);
	if (env == NULL)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	k.language = cstr_blob(language);
	run[0] = cstr_blob(rt->run[0]);
	run[1] = cstr_blob("-");
	k.env = env;
	k.env_count = put_env(kernel_env, KERNEL_ENV_COUNT, rt->env, env);
	begun = proto_begin(out, PROTO_GUEST_KERNEL);
	guest_kernel_encode(&k, out);
	proto_end(out, begun);
	if (out->failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	return 0;
}

int plan_guest_step(
    const struct job *job, uint32_t number, struct buf *out, struct err *e)
{
	const struct guest_step s = {.number = number,
	    .display = job->display,
	    .output_bytes = job->limits.output_bytes,
	    .entry = job->entry,
	    .files = job->files,
	    .file_count = job->file_count,
	    .stdin_data = job->stdin_data};
	size_t begun = proto_begin(out, PROTO_GUEST_STEP);

	guest_step_encode(&s, out);
	proto_end(out, begun);
	if (out->failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	return 0;
}
