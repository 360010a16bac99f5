/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/num.h"
#include "lib/path.h"
#include "lib/runtime_text.h"
#include "lib/ydoc.h"

#define NAME_MAX_LEN 32u
#define IMAGE_MAX_LEN 64u
#define ALIASES_MAX 16u
#define ENV_MAX 64u

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"

static const struct rtext_shape shape_name = {LOWER DIGIT, LOWER DIGIT "+._-",
    NAME_MAX_LEN,
    "must be 1 to 32 of a-z 0-9 + . _ -, beginning with a letter or digit"};
static const struct rtext_shape shape_version = {LOWER UPPER DIGIT,
    LOWER UPPER DIGIT "+._-", NAME_MAX_LEN,
    "must be 1 to 32 of A-Z a-z 0-9 + . _ -, beginning with a letter or digit"};
static const struct rtext_shape shape_image = {LOWER UPPER DIGIT,
    LOWER UPPER DIGIT "._-", IMAGE_MAX_LEN,
    "must be 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit"};
static const struct rtext_shape shape_preload = {LOWER UPPER DIGIT "_@",
    LOWER UPPER DIGIT "_@./:-", LIMIT_PRELOAD_NAME,
    "must be the name of a module: 1 to 128 of A-Z a-z 0-9 _ @ . / : -"};

static int set_name(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	return rtext_copy(d, n, &shape_name, &rt->name, e);
}

static int set_version(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	return rtext_copy(d, n, &shape_version, &rt->version, e);
}

static int set_aliases(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	return rtext_copy_list(d, n, &shape_name, ALIASES_MAX, &rt->aliases, e);
}

static int set_image(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	return rtext_copy(d, n, &shape_image, &rt->image, e);
}

static int set_source_file(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	const char *text = rtext_get(d, n, e);

	if (text == NULL)
		return -e->code;
	if (path_check_name(text, strlen(text), e) < 0) {
		e->kind = ERR_INTERNAL;
		return ydoc_wrap(d, n, e);
	}
	rt->source_file = strdup(text);
	return rt->source_file != NULL ? 0 : rtext_no_memory(d, n, e);
}

static int set_compile(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	return rtext_copy_argv(d, n, &rt->compile, e);
}

static int set_run(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	return rtext_copy_argv(d, n, &rt->run, e);
}

static bool is_env_name(const char *s)
{
	return (*s == '_' || (*s >= 'A' && *s <= 'Z')) &&
	       strspn(s, UPPER DIGIT "_") == strlen(s);
}

static int set_variable(
    const struct ydoc *d, const struct ydoc_node *n, char **ret, struct err *e)
{
	const char *text;

	if (!is_env_name(n->key))
		return rtext_refuse(d, n, e,
		    "a variable's name must be of A-Z 0-9 _ and not begin with "
		    "a digit");
	text = rtext_get(d, n, e);
	if (text == NULL)
		return -e->code;
	if (asprintf(ret, "%s=%s", n->key, text) < 0) {
		*ret = NULL;
		return rtext_no_memory(d, n, e);
	}
	return 0;
}

static int set_env(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	int r = 0;

	rt->env = rtext_new_list(d, n, YDOC_MAP, ENV_MAX, e);
	if (rt->env == NULL)
		return -e->code;
	for (size_t i = 0; r == 0 && i < n->count; i++)
		r = set_variable(d, &n->items[i], &rt->env[i], e);
	return r;
}

static int set_scratch(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	static const char *const words[] = {"noexec", "exec"};
	int r = rtext_get_word(d, n, words, 2, "must be noexec or exec", e);

	if (r >= 0)
		rt->scratch_exec = r == 1;
	return r;
}

static int set_warm(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	static const char *const words[] = {
	    [WARM_NONE] = "none",
	    [WARM_BOOT] = "boot",
	    [WARM_COMPILER] = "compiler",
	    [WARM_INTERPRETER] = "interpreter",
	};
	int r = rtext_get_word(
	    d, n, words, 4, "must be none, boot, compiler or interpreter", e);

	if (r >= 0)
		rt->warm = (enum runtime_warm)r;
	return r;
}

static int set_preload(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	return rtext_copy_list(
	    d, n, &shape_preload, LIMIT_PRELOAD, &rt->preload, e);
}

static int set_kernel(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	return ydoc_get_bool(d, n, &rt->kernel, e);
}

static int set_default(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	return ydoc_get_bool(d, n, &rt->is_default, e);
}

static int set_cpus(const struct ydoc *d, const struct ydoc_node *n,
    uint32_t *ret, struct err *e)
{
	int r = ydoc_check_kind(d, n, YDOC_SCALAR, e);

	if (r < 0)
		return r;
	r = num_parse_milli(
	    n->plain ? n->text : "", LIMIT_CPUS_MIN, LIMIT_CPUS_MAX, ret, e);
	return r < 0 ? ydoc_wrap(d, n, e) : 0;
}

static int set_limit(struct limits *l, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	const struct {
		const char *key;
		uint64_t min;
		uint64_t max;
		uint32_t *ret;
	} small[] = {
	    {"pids", LIMIT_PIDS_MIN, LIMIT_PIDS_MAX, &l->pids},
	    {"output_bytes", LIMIT_OUTPUT_MIN, LIMIT_OUTPUT_MAX,
		&l->output_bytes},
	    {"wall_time_ms", LIMIT_WALL_MIN_MS, LIMIT_WALL_MAX_MS,
		&l->wall_time_ms},
	};

	if (strcmp(n->key, "memory_bytes") == 0)
		return ydoc_get_uint(d, n, LIMIT_MEMORY_MIN, LIMIT_MEMORY_MAX,
		    &l->memory_bytes, e);
	if (strcmp(n->key, "cpus") == 0)
		return set_cpus(d, n, &l->cpus_milli, e);
	for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
		uint64_t v;
		int r;

		if (strcmp(n->key, small[i].key) != 0)
			continue;
		r = ydoc_get_uint(d, n, small[i].min, small[i].max, &v, e);
		if (r == 0)
			*small[i].ret = (uint32_t)v;
		return r;
	}
	return rtext_refuse(d, n, e,
	    "unknown key; allowed are memory_bytes, cpus, pids, output_bytes, "
	    "wall_time_ms");
}

static int set_limits(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	int r = ydoc_check_kind(d, n, YDOC_MAP, e);

	for (size_t i = 0; r == 0 && i < n->count; i++)
		r = set_limit(&rt->limits, d, &n->items[i], e);
	return r;
}

static const struct field {
	const char *key;
	bool required;
	int (*set)(struct runtime *rt, const struct ydoc *d,
	    const struct ydoc_node *n, struct err *e);
} fields[] = {
    {"name", true, set_name},
    {"version", true, set_version},
    {"aliases", false, set_aliases},
    {"image", true, set_image},
    {"source_file", true, set_source_file},
    {"compile", false, set_compile},
    {"run", true, set_run},
    {"env", false, set_env},
    {"scratch", false, set_scratch},
    {"limits", false, set_limits},
    {"warm", false, set_warm},
    {"preload", false, set_preload},
    {"kernel", false, set_kernel},
    {"default", false, set_default},
};

#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

static int set_field(struct runtime *rt, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	for (size_t i = 0; i < FIELD_COUNT; i++)
		if (strcmp(fields[i].key, n->key) == 0)
			return fields[i].set(rt, d, n, e);
	return rtext_refuse(d, n, e,
	    "unknown key; allowed are name, version, aliases, image, "
	    "source_file, compile, run, env, scratch, limits, warm, preload, "
	    "kernel, default");
}

static bool has_key(const struct ydoc *d, const char *key)
{
	for (size_t i = 0; i < d->root.count; i++)
		if (strcmp(d->root.items[i].key, key) == 0)
			return true;
	return false;
}

static int check_required(const struct ydoc *d, struct err *e)
{
	for (size_t i = 0; i < FIELD_COUNT; i++) {
		if (!fields[i].required || has_key(d, fields[i].key))
			continue;
		(void)err_set(e, ERR_INTERNAL, EINVAL, "the key %s is missing",
		    fields[i].key);
		return ydoc_wrap(d, &d->root, e);
	}
	return 0;
}

/* Lists that the file leaves out are empty, never NULL. */
static int fill_lists(struct runtime *rt, const struct ydoc *d, struct err *e)
{
	char ***const lists[] = {
	    &rt->aliases, &rt->compile, &rt->env, &rt->preload};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		if (*lists[i] == NULL)
			*lists[i] = calloc(1, sizeof(**lists[i]));
		if (*lists[i] == NULL)
			return rtext_no_memory(d, &d->root, e);
	}
	return 0;
}

int runtime_from_doc(const struct ydoc *d, struct runtime *rt, struct err *e)
{
	int r = 0;

	rt->file = strdup(d->file);
	if (rt->file == NULL)
		return rtext_no_memory(d, &d->root, e);
	rt->limits = (struct limits){
	    .memory_bytes = 256ull << 20,
	    .cpus_milli = 1000,
	    .pids = LIMIT_PIDS_DEFAULT,
	    .output_bytes = LIMIT_OUTPUT_DEFAULT,
	    .wall_time_ms = 10000,
	};
	for (size_t i = 0; r >= 0 && i < d->root.count; i++)
		r = set_field(rt, d, &d->root.items[i], e);
	if (r >= 0)
		r = check_required(d, e);
	if (r >= 0)
		r = fill_lists(rt, d, e);
	if (r >= 0 && rt->preload[0] != NULL && rt->warm != WARM_INTERPRETER)
		r = rtext_refuse(d, &d->root, e,
		    "preload is only allowed with warm: interpreter");
	if (r >= 0 && rt->compile[0] == NULL && rt->warm == WARM_COMPILER)
		r = rtext_refuse(d, &d->root, e,
		    "warm: compiler is only allowed with compile");
	return r;
}

int runtime_read(const char *path, struct runtime *rt, struct err *e)
{
	cleanup_ydoc struct ydoc *d = NULL;
	int r = ydoc_load(path, &d, e);

	if (r < 0)
		return r;
	return runtime_from_doc(d, rt, e);
}

static void free_list(char **list)
{
	for (size_t i = 0; list != NULL && list[i] != NULL; i++)
		free(list[i]);
	free(list);
}

void runtime_done(struct runtime *rt)
{
	free(rt->file);
	free(rt->name);
	free(rt->version);
	free_list(rt->aliases);
	free(rt->image);
	free(rt->source_file);
	free_list(rt->compile);
	free_list(rt->run);
	free_list(rt->env);
	free_list(rt->preload);
	free(rt->rootfs);
	free(rt->why);
	*rt = (struct runtime){0};
}
