/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/registry.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/cleanup.h"
#include "lib/images.h"
#include "lib/log.h"
#include "lib/runtime.h"
#include "lib/utf8.h"

#define FILES_MAX 256u

/* Bytes of a name that a client sent, in a message for it. */
#define NAME_SHOWN 40u

static void images_closep(struct images **im)
{
	images_close(*im);
}
#define cleanup_images __attribute__((cleanup(images_closep)))

void registry_free(struct registry *r)
{
	if (r == NULL)
		return;
	for (size_t i = 0; i < r->count; i++)
		runtime_done(&r->runtimes[i]);
	free(r->runtimes);
	free(r);
}

static int is_yaml(const struct dirent *d)
{
	size_t len = strlen(d->d_name);

	return d->d_name[0] != '.' && len > 5 &&
	       strcmp(d->d_name + len - 5, ".yaml") == 0;
}

static int add_file(
    struct registry *r, const char *dir, const char *name, struct err *e)
{
	cleanup_free char *path = NULL;
	struct runtime *runtimes;

	if (r->count >= FILES_MAX)
		return err_set(e, ERR_INTERNAL, E2BIG,
		    "%.100s: at most %u runtimes are allowed", dir, FILES_MAX);
	runtimes = reallocarray(r->runtimes, r->count + 1, sizeof(*runtimes));
	if (runtimes == NULL || asprintf(&path, "%s/%s", dir, name) < 0) {
		path = NULL;
		r->runtimes = runtimes != NULL ? runtimes : r->runtimes;
		return err_sys(e, ENOMEM, "%.100s", dir);
	}
	r->runtimes = runtimes;
	runtimes += r->count++;
	*runtimes = (struct runtime){0};
	return runtime_read(path, runtimes, e);
}

/* Files are read in the order of their names: the first bad one is reported. */
static int read_dir(struct registry *r, const char *dir, struct err *e)
{
	struct dirent **names = NULL;
	int n = scandir(dir, &names, is_yaml, alphasort);
	int err = 0;

	if (n < 0)
		return err_sys(e, errno, "%.100s", dir);
	if (n == 0)
		err = err_set(e, ERR_INTERNAL, ENOENT,
		    "%.100s: holds no *.yaml file", dir);
	for (int i = 0; i < n; i++) {
		if (err == 0)
			err = add_file(r, dir, names[i]->d_name, e);
		free(names[i]);
	}
	free(names);
	return err;
}

static int by_name_and_version(const void *a, const void *b)
{
	const struct runtime *x = a;
	const struct runtime *y = b;
	int c = strcmp(x->name, y->name);

	return c != 0 ? c : strcmp(x->version, y->version);
}

static bool has_alias(const struct runtime *rt, const char *name)
{
	for (size_t i = 0; rt->aliases[i] != NULL; i++)
		if (strcmp(rt->aliases[i], name) == 0)
			return true;
	return false;
}

static int conflict(const struct runtime *a, const struct runtime *b,
    const char *what, const char *name, struct err *e)
{
	return err_set(e, ERR_INTERNAL, EEXIST, "%s: %s \"%s\" is taken by %s",
	    a->file, what, name, b->file);
}

/* An alias belongs to a name: versions of the same one may share it. */
static int check_pair(
    const struct runtime *a, const struct runtime *b, struct err *e)
{
	if (strcmp(a->name, b->name) == 0) {
		if (strcmp(a->version, b->version) == 0)
			return conflict(b, a, "this version of", a->name, e);
		if (a->is_default && b->is_default)
			return conflict(b, a, "default of", a->name, e);
		return 0;
	}
	if (has_alias(a, b->name))
		return conflict(a, b, "alias", b->name, e);
	if (has_alias(b, a->name))
		return conflict(b, a, "alias", a->name, e);
	for (size_t i = 0; a->aliases[i] != NULL; i++)
		if (has_alias(b, a->aliases[i]))
			return conflict(b, a, "alias", a->aliases[i], e);
	return 0;
}

static int check_own_aliases(const struct runtime *rt, struct err *e)
{
	for (size_t i = 0; rt->aliases[i] != NULL; i++) {
		bool twice = strcmp(rt->aliases[i], rt->name) == 0;

		for (size_t j = 0; j < i; j++)
			twice |= strcmp(rt->aliases[i], rt->aliases[j]) == 0;
		if (twice)
			return err_set(e, ERR_INTERNAL, EEXIST,
			    "%s: alias \"%s\" is given twice, or is the name",
			    rt->file, rt->aliases[i]);
	}
	return 0;
}

/* Of runtimes [begin, end), all of one name: exactly one is the default. */
static int check_default(
    struct runtime *begin, const struct runtime *end, struct err *e)
{
	for (const struct runtime *rt = begin; rt < end; rt++)
		if (rt->is_default)
			return 0;
	if (end - begin > 1)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "%s: \"%s\" has several versions; one needs default: true",
		    begin->file, begin->name);
	begin->is_default = true;
	return 0;
}

/* The runtimes are sorted. */
static int check_all(struct registry *r, struct err *e)
{
	size_t begin = 0;
	int err = 0;

	for (size_t i = 0; err == 0 && i < r->count; i++) {
		err = check_own_aliases(&r->runtimes[i], e);
		for (size_t j = 0; err == 0 && j < i; j++)
			err = check_pair(&r->runtimes[j], &r->runtimes[i], e);
	}
	for (size_t i = 1; err == 0 && i <= r->count; i++) {
		if (i < r->count &&
		    strcmp(r->runtimes[begin].name, r->runtimes[i].name) == 0)
			continue;
		err = check_default(&r->runtimes[begin], &r->runtimes[i], e);
		begin = i;
	}
	return err;
}

static int look_at_image(struct runtime *rt, const char *images_dir,
    const struct images *im, struct err *e)
{
	struct err why = {0};

	if (asprintf(&rt->rootfs, "%s/%s", images_dir, rt->image) < 0) {
		rt->rootfs = NULL;
		return err_sys(e, ENOMEM, "%s", rt->file);
	}
	rt->available = images_check(im, rt->image, &why) == 0;
	if (rt->available)
		return 0;
	rt->why = strdup(why.msg);
	return rt->why != NULL ? 0 : err_sys(e, ENOMEM, "%s", rt->file);
}

static int look_at_images(
    struct registry *r, const char *images_dir, struct err *e)
{
	cleanup_images struct images *im = NULL;
	int err = images_open(images_dir, &im, e);

	for (size_t i = 0; err == 0 && i < r->count; i++)
		err = look_at_image(&r->runtimes[i], images_dir, im, e);
	return err;
}

static int fill(
    struct registry *r, const char *dir, const char *images_dir, struct err *e)
{
	int err = read_dir(r, dir, e);

	if (err < 0)
		return err;
	if (r->count > 1)
		qsort(r->runtimes, r->count, sizeof(*r->runtimes),
		    by_name_and_version);
	err = check_all(r, e);
	if (err == 0)
		err = look_at_images(r, images_dir, e);
	return err;
}

int registry_load(const char *dir, const char *images_dir,
    struct registry **ret, struct err *e)
{
	struct registry *r = calloc(1, sizeof(*r));
	int err;

	if (r == NULL)
		return err_sys(e, ENOMEM, "cannot read the registry");
	err = fill(r, dir, images_dir, e);
	if (err < 0) {
		registry_free(r);
		return err;
	}
	*ret = r;
	return 0;
}

static bool is_text(const char *s, const char *text, size_t len)
{
	return strlen(s) == len && memcmp(s, text, len) == 0;
}

static bool is_called(const struct runtime *rt, const char *name, size_t len)
{
	if (is_text(rt->name, name, len))
		return true;
	for (size_t i = 0; rt->aliases[i] != NULL; i++)
		if (is_text(rt->aliases[i], name, len))
			return true;
	return false;
}

/* The name that this one or alias belongs to, of a runtime that is there. */
static const char *real_name(
    const struct registry *r, const char *name, size_t len)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->runtimes[i].available &&
		    is_called(&r->runtimes[i], name, len))
			return r->runtimes[i].name;
	return NULL;
}

/* What a client sent, fit for a message: short, well-formed, printable. */
static void show(const char *text, size_t len, char ret[NAME_SHOWN + 4])
{
	cleanup_buf struct buf out = {0};
	struct utf8_stream u = {0};
	size_t n = len < NAME_SHOWN ? len : NAME_SHOWN;

	utf8_stream_put(&u, (const uint8_t *)text, n, &out);
	utf8_stream_end(&u, n < len, &out);
	for (size_t i = 0; i < out.len; i++)
		if (out.data[i] < ' ' || out.data[i] == 0x7f)
			out.data[i] = '?';
	n = out.len < NAME_SHOWN ? out.len : NAME_SHOWN;
	while (n < out.len && n > 0 && (out.data[n] & 0xc0) == 0x80)
		n--;
	(void)snprintf(ret, NAME_SHOWN + 4, "%.*s%s", (int)n,
	    n > 0 ? (const char *)out.data : "",
	    n < out.len || len > NAME_SHOWN ? "..." : "");
}

static int unknown_language(const char *name, size_t len, struct err *e)
{
	char shown[NAME_SHOWN + 4];

	show(name, len, shown);
	return err_set(e, ERR_UNKNOWN_LANGUAGE, ENOENT,
	    "\"%s\" is not a known runtime; see GET /runtimes", shown);
}

/* version NULL: the default one is not there, but others are. */
static int unknown_version(const struct registry *r, const char *name,
    const char *version, size_t len, struct err *e)
{
	cleanup_buf struct buf list = {0};
	char shown[NAME_SHOWN + 4];

	for (size_t i = 0; i < r->count; i++) {
		const struct runtime *rt = &r->runtimes[i];

		if (rt->available && strcmp(rt->name, name) == 0)
			buf_printf(&list, "%s%s", list.len > 0 ? ", " : "",
			    rt->version);
	}
	buf_putc(&list, '\0');
	if (list.failed)
		return err_sys(e, ENOMEM, "cannot list the versions");
	if (version == NULL)
		return err_set(e, ERR_UNKNOWN_LANGUAGE, ENOENT,
		    "the default version of %s is not available; there is %s",
		    name, (const char *)list.data);
	show(version, len, shown);
	return err_set(e, ERR_UNKNOWN_LANGUAGE, ENOENT,
	    "\"%s\" is not a version of %s; there is %s", shown, name,
	    (const char *)list.data);
}

const struct runtime *registry_find(const struct registry *r, const char *name,
    size_t name_len, const char *version, size_t version_len, struct err *e)
{
	const char *real = real_name(r, name, name_len);

	for (size_t i = 0; real != NULL && i < r->count; i++) {
		const struct runtime *rt = &r->runtimes[i];

		if (!rt->available || strcmp(rt->name, real) != 0)
			continue;
		if (version != NULL ? is_text(rt->version, version, version_len)
				    : rt->is_default)
			return rt;
	}
	if (real != NULL)
		(void)unknown_version(r, real, version, version_len, e);
	else
		(void)unknown_language(name, name_len, e);
	return NULL;
}

void registry_log_missing(const struct registry *r)
{
	for (size_t i = 0; i < r->count; i++)
		if (!r->runtimes[i].available)
			log_warn("%s %s is not offered: %s",
			    r->runtimes[i].name, r->runtimes[i].version,
			    r->runtimes[i].why);
}
