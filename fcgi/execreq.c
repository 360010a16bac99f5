/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/execreq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fcgi/execfile.h"
#include "lib/path.h"

/* What the request itself says about limits; the runtime has the rest. */
struct wishes {
	bool has_memory, has_cpus, has_pids, has_output, has_wall;
	int64_t memory, pids, output, wall;
	double cpus;
};

/* The members, borrowed from the parsed body. */
struct members {
	struct blob language, version, code, stdin_data, output_encoding;
	bool has_code;
	struct json_object *files;
	struct json_object *args;
	struct wishes wishes;
};

static int get_blob(struct json_object *obj, const char *key, const char *path,
    struct blob *ret, struct err *e)
{
	const char *s;
	size_t len;
	int r = json_get_str(obj, key, path, &s, &len, e);

	if (r > 0)
		*ret = (struct blob){(const uint8_t *)s, len};
	return r;
}

static int get_wish(struct json_object *obj, const char *key, const char *path,
    bool *ret_has, int64_t *ret, struct err *e)
{
	int r = json_get_int(obj, key, path, ret, e);

	*ret_has = r > 0;
	return r;
}

static int get_wishes(struct json_object *root, struct wishes *w, struct err *e)
{
	struct json_object *o;
	int r = json_get_obj(root, "limits", "limits", &o, e);

	if (r <= 0)
		return r;
	r = json_get_num(o, "cpus", "limits.cpus", &w->cpus, e);
	w->has_cpus = r > 0;
	if (r < 0 ||
	    (r = get_wish(o, "memoryBytes", "limits.memoryBytes",
		 &w->has_memory, &w->memory, e)) < 0 ||
	    (r = get_wish(
		 o, "pids", "limits.pids", &w->has_pids, &w->pids, e)) < 0 ||
	    (r = get_wish(o, "outputBytes", "limits.outputBytes",
		 &w->has_output, &w->output, e)) < 0)
		return r;
	return get_wish(
	    o, "wallTimeMs", "limits.wallTimeMs", &w->has_wall, &w->wall, e);
}

static uint64_t not_negative(int64_t v)
{
	return v < 0 ? 0 : (uint64_t)v;
}

static uint32_t to_u32(int64_t v)
{
	uint64_t u = not_negative(v);

	return u > UINT32_MAX ? UINT32_MAX : (uint32_t)u;
}

static uint32_t to_milli(double cpus)
{
	double milli = cpus * 1000;

	if (milli <= 0)
		return 0;
	return milli >= LIMIT_CPUS_MAX ? LIMIT_CPUS_MAX
				       : (uint32_t)(milli + 0.5);
}

static uint32_t clamp(uint32_t v, uint32_t min, uint32_t max)
{
	if (v < min)
		return min;
	return v > max ? max : v;
}

/* The runtime's limits with the request's over them, within the bounds.
 * wall_max_ms: of a kernel's step, else 0. */
static struct limits limits_for(
    const struct limits *defaults, const struct wishes *w, uint32_t wall_max_ms)
{
	struct limits l = *defaults;
	uint32_t wall_ms;

	if (w->has_memory)
		l.memory_bytes = not_negative(w->memory);
	if (w->has_cpus)
		l.cpus_milli = to_milli(w->cpus);
	if (w->has_pids)
		l.pids = to_u32(w->pids);
	if (w->has_output)
		l.output_bytes = to_u32(w->output);
	if (w->has_wall)
		l.wall_time_ms = to_u32(w->wall);
	wall_ms = l.wall_time_ms;
	limits_clamp(&l);
	if (wall_max_ms > 0)
		l.wall_time_ms = clamp(wall_ms, LIMIT_WALL_MIN_MS, wall_max_ms);
	return l;
}

static int get_language(
    struct json_object *root, struct members *m, struct err *e)
{
	int r = get_blob(root, "language", "language", &m->language, e);

	if (r < 0)
		return r;
	if (r == 0 || m->language.len == 0)
		return err_set(e, ERR_LANGUAGE_REQUIRED, EINVAL, "%s", "");
	return get_blob(root, "version", "version", &m->version, e);
}

static int get_members(struct execreq *q, struct members *m, struct err *e)
{
	struct json_object *root = q->root;
	int r;

	r = get_blob(root, "code", "code", &m->code, e);
	if (r < 0)
		return r;
	m->has_code = r > 0;
	if ((r = json_get_arr(root, "files", "files", &m->files, e)) < 0 ||
	    (r = get_blob(root, "stdin", "stdin", &m->stdin_data, e)) < 0 ||
	    (r = json_get_arr(root, "args", "args", &m->args, e)) < 0 ||
	    (r = get_wishes(root, &m->wishes, e)) < 0 ||
	    (r = execnet_take(root, &q->network, e)) < 0)
		return r;
	q->job.network = q->network.on;
	q->job.allow = q->network.names;
	q->job.allow_count = q->network.count;
	return get_blob(
	    root, "outputEncoding", "outputEncoding", &m->output_encoding, e);
}

static bool is_text(const struct blob *b, const char *text)
{
	return b->len == strlen(text) && memcmp(b->data, text, b->len) == 0;
}

static int take_output_encoding(
    struct execreq *q, const struct blob *encoding, struct err *e)
{
	if (encoding->data == NULL || is_text(encoding, "utf8"))
		return 0;
	q->base64 = is_text(encoding, "base64");
	if (q->base64)
		return 0;
	return err_set(e, ERR_INVALID_REQUEST, EINVAL,
	    "outputEncoding must be \"utf8\" or \"base64\"");
}

static int take_args(struct execreq *q, struct json_object *args, struct err *e)
{
	size_t n = args != NULL ? json_object_array_length(args) : 0;

	if (n > LIMIT_ARGS)
		return err_set(e, ERR_INVALID_REQUEST, E2BIG,
		    "args: %zu of them, at most %u are allowed", n, LIMIT_ARGS);
	for (size_t i = 0; i < n; i++) {
		struct json_object *v = json_object_array_get_idx(args, i);
		struct blob *a = &q->args[i];

		if (!json_object_is_type(v, json_type_string))
			return err_set(e, ERR_INVALID_REQUEST, EINVAL,
			    "args[%zu] must be a string", i);
		a->data = (const uint8_t *)json_object_get_string(v);
		a->len = (size_t)json_object_get_string_len(v);
		if (memchr(a->data, '\0', a->len) != NULL)
			return err_set(e, ERR_INVALID_REQUEST, EINVAL,
			    "args[%zu] must not contain NUL", i);
	}
	q->job.args = q->args;
	q->job.arg_count = n;
	return 0;
}

/* What the steps of a live kernel have, or have not, beyond others. */
static int take_kernel(struct execreq *q, struct err *e)
{
	if (q->wall_max_ms == 0)
		return 0;
	if (q->job.arg_count > 0)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "args: a step in a kernel has none");
	q->job.kernel = true;
	return json_get_bool(q->root, "display", "display", &q->job.display, e);
}

static int take_files(struct execreq *q, const struct members *m, struct err *e)
{
	size_t n = m->files != NULL ? json_object_array_length(m->files) : 0;

	if (!m->has_code && n == 0)
		return err_set(
		    e, ERR_NO_SOURCE, EINVAL, "provide `code` or `files`");
	if (n + (m->has_code ? 1 : 0) > LIMIT_FILES)
		return err_set(e, ERR_INVALID_FILE, E2BIG,
		    "files: at most %u are allowed, `code` counts as one",
		    LIMIT_FILES);
	for (size_t i = 0; i < n; i++) {
		int r = execfile_take(json_object_array_get_idx(m->files, i), i,
		    &q->files[i], &q->decoded[i], e);

		if (r < 0)
			return r;
	}
	q->job.files = q->files;
	q->job.file_count = n;
	return 0;
}

/* The entry point: `code` under the runtime's name for it, else the file of that
 * name, else the first. */
static int take_entry(struct execreq *q, const struct members *m, struct err *e)
{
	const char *source = q->runtime->source_file;
	struct job *job = &q->job;

	for (size_t i = 0; i < job->file_count; i++) {
		if (!is_text(&job->files[i].name, source))
			continue;
		job->entry = (uint32_t)i;
		if (m->has_code)
			return err_set(e, ERR_INVALID_FILE, EEXIST,
			    "files[%zu].name: \"%s\" is the name of `code`", i,
			    source);
	}
	if (!m->has_code)
		return 0;
	job->entry = (uint32_t)job->file_count;
	job->files[job->file_count++] =
	    (struct job_file){.name = {(const uint8_t *)source, strlen(source)},
		.content = m->code};
	return 0;
}

/* All names together, `code` among them. */
static int check_names(const struct execreq *q, bool has_code, struct err *e)
{
	const char *names[LIMIT_FILES];
	size_t n = q->job.file_count;
	size_t index;
	int r;

	for (size_t i = 0; i < n; i++)
		names[i] = (const char *)q->files[i].name.data;
	r = path_check_set(names, n, &index, e);
	if (r >= 0)
		return r;
	if (has_code && index == n - 1) /* the last is `code` */
		return err_set(e, ERR_INVALID_FILE, EEXIST,
		    "files: a name is in the way of \"%s\", the name of `code`",
		    q->runtime->source_file);
	return err_wrap(e, "files[%zu].name", index);
}

static int find_runtime(struct execreq *q, const struct members *m,
    const struct registry *registry, struct err *e)
{
	q->runtime = registry_find(registry, (const char *)m->language.data,
	    m->language.len,
	    m->version.len > 0 ? (const char *)m->version.data : NULL,
	    m->version.len, e);
	return q->runtime != NULL ? 0 : -EINVAL;
}

static void take_runtime(struct execreq *q, const struct members *m)
{
	const struct runtime *rt = q->runtime;

	q->job.runtime =
	    (struct blob){(const uint8_t *)rt->name, strlen(rt->name)};
	q->job.version =
	    (struct blob){(const uint8_t *)rt->version, strlen(rt->version)};
	q->job.limits = limits_for(&rt->limits, &m->wishes, q->wall_max_ms);
}

/* registry NULL: q->runtime is set. */
static int parse(struct execreq *q, const uint8_t *body, size_t len,
    const struct registry *registry, struct err *e)
{
	struct members m = {0};
	bool step = registry == NULL;
	int r;

	if ((r = json_parse_strict(body, len, &q->root, e)) < 0 ||
	    (!step && (r = get_language(q->root, &m, e)) < 0) ||
	    (r = get_members(q, &m, e)) < 0 ||
	    (r = take_output_encoding(q, &m.output_encoding, e)) < 0 ||
	    (r = take_args(q, m.args, e)) < 0 || (r = take_kernel(q, e)) < 0 ||
	    (r = take_files(q, &m, e)) < 0 ||
	    (!step && (r = find_runtime(q, &m, registry, e)) < 0))
		return r;
	take_runtime(q, &m);
	r = take_entry(q, &m, e);
	if (r < 0)
		return r;
	q->job.stdin_data = m.stdin_data;
	return check_names(q, m.has_code, e);
}

int execreq_parse(struct execreq *q, const uint8_t *body, size_t len,
    const struct registry *registry, struct err *e)
{
	memset(q, 0, sizeof(*q));
	return parse(q, body, len, registry, e);
}

int execreq_parse_step(struct execreq *q, const uint8_t *body, size_t len,
    const struct runtime *runtime, struct err *e)
{
	memset(q, 0, sizeof(*q));
	q->runtime = runtime;
	return parse(q, body, len, NULL, e);
}

int execreq_parse_kernel(struct execreq *q, const uint8_t *body, size_t len,
    const struct runtime *runtime, uint32_t wall_max_ms, struct err *e)
{
	memset(q, 0, sizeof(*q));
	q->runtime = runtime;
	q->wall_max_ms = wall_max_ms;
	return parse(q, body, len, NULL, e);
}

void execreq_done(struct execreq *q)
{
	for (size_t i = 0; i < LIMIT_FILES; i++)
		free(q->decoded[i]);
	if (q->root != NULL)
		(void)json_object_put(q->root);
	memset(q, 0, sizeof(*q));
}
