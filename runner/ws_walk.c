/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. A stack of folders, the top of the tree at its bottom. Of
 * each folder all entries are read at once; the names of its folders wait in one
 * buffer, used as a stack as well. Only the innermost FDS_OPEN folders are open:
 * whoever comes back to one further out opens it as ".." of the one inside, and
 * looks whether it is the same as before, since the tree may have been moved.
 */
#include "runner/ws_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/buf.h"
#include "lib/cleanup.h"
#include "lib/limits.h"

#define FDS_OPEN 64u
#define READ_SIZE (32u * 1024)
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* How often a count begins anew when the tree was moved under it. */
#define COUNT_TRIES 5

struct folder {
	int fd; /* -1: closed meanwhile */
	dev_t dev;
	ino_t ino;
	size_t names; /* where its folders' names begin in walk.names */
	size_t path; /* the length of walk.path before its name */
};

struct walk {
	struct folder *stack;
	size_t depth;
	size_t cap;
	struct buf names; /* each with its NUL */
	struct buf path; /* of the innermost folder, "a/b/", no NUL */
	uint8_t *entries; /* READ_SIZE */
	ws_walk_fn *fn;
	void *arg;
};

static int no_memory(struct err *e)
{
	return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
}

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int visit(
    struct walk *w, const struct folder *f, const char *name, struct err *e)
{
	struct stat st;
	struct ws_item item = {f->fd, NULL, name, &st};
	int rc;

	if (fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "stat");
	buf_putc(&w->path, '\0');
	if (w->path.failed)
		return no_memory(e);
	w->path.len--;
	item.dir = (const char *)w->path.data;
	rc = w->fn(w->arg, &item, e);
	if (rc == 0 && S_ISDIR(st.st_mode) && st.st_dev == f->dev)
		buf_put(&w->names, name, strlen(name) + 1);
	return rc == 0 && w->names.failed ? no_memory(e) : rc;
}

static int read_folder(struct walk *w, struct err *e)
{
	const struct folder f = w->stack[w->depth - 1];

	for (;;) {
		ssize_t n = getdents64(f.fd, w->entries, READ_SIZE);

		if (n < 0 && errno != ENOENT) /* removed meanwhile */
			return err_sys(e, errno, "reading a folder");
		if (n <= 0)
			return 0;
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d =
			    (const void *)(w->entries + at);
			int rc =
			    is_dots(d->d_name) ? 0 : visit(w, &f, d->d_name, e);

			if (rc != 0)
				return rc;
			at += d->d_reclen;
		}
	}
}

static int grow(struct walk *w, struct err *e)
{
	size_t cap = w->cap > 0 ? 2 * w->cap : FDS_OPEN;
	struct folder *stack;

	if (w->depth < w->cap)
		return 0;
	stack = reallocarray(w->stack, cap, sizeof *stack);
	if (stack == NULL)
		return no_memory(e);
	w->stack = stack;
	w->cap = cap;
	return 0;
}

/* Takes fd, whatever comes of it. */
static int enter(struct walk *w, int fd, const char *name, struct err *e)
{
	struct stat st;
	int rc = grow(w, e);

	if (rc == 0 && fstat(fd, &st) != 0)
		rc = err_sys(e, errno, "stat");
	if (rc < 0) {
		(void)close(fd);
		return rc;
	}
	w->stack[w->depth++] = (struct folder){
	    fd, st.st_dev, st.st_ino, w->names.len, w->path.len};
	if (name[0] != '\0') {
		buf_puts(&w->path, name);
		buf_putc(&w->path, '/');
	}
	if (w->depth > FDS_OPEN) {
		struct folder *outer = &w->stack[w->depth - 1 - FDS_OPEN];

		(void)close(outer->fd);
		outer->fd = -1;
	}
	return read_folder(w, e);
}

/* Takes the last name that waits. */
static void pop_name(struct walk *w, char name[LIMIT_NAME_COMPONENT + 1])
{
	size_t at = w->names.len - 1;

	while (at > 0 && w->names.data[at - 1] != '\0')
		at--;
	(void)memcpy(name, w->names.data + at, w->names.len - at);
	w->names.len = at;
}

static int descend(struct walk *w, struct err *e)
{
	char name[LIMIT_NAME_COMPONENT + 1];
	int fd;

	pop_name(w, name);
	fd = openat(w->stack[w->depth - 1].fd, name, DIR_FLAGS);
	if (fd >= 0)
		return enter(w, fd, name, e);
	/* It is gone, or something else by now. */
	if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
		return 0;
	return err_sys(e, errno, "opening a folder");
}

static int ascend(struct walk *w, struct err *e)
{
	struct folder *inner = &w->stack[w->depth - 1];
	struct folder *outer = w->depth > 1 ? inner - 1 : NULL;
	struct stat st;

	if (outer != NULL && outer->fd < 0) {
		outer->fd = openat(inner->fd, "..", DIR_FLAGS);
		if (outer->fd < 0 || fstat(outer->fd, &st) != 0 ||
		    st.st_dev != outer->dev || st.st_ino != outer->ino)
			return err_set(e, ERR_SESSION_BUSY, ESTALE,
			    "the files change too fast to be counted");
	}
	(void)close(inner->fd);
	w->path.len = inner->path;
	w->depth--;
	return 0;
}

static int walk_on(struct walk *w, struct err *e)
{
	int rc = 0;

	while (rc == 0 && w->depth > 0) {
		if (w->names.len > w->stack[w->depth - 1].names)
			rc = descend(w, e);
		else
			rc = ascend(w, e);
	}
	return rc;
}

int ws_walk(int top_fd, ws_walk_fn *fn, void *arg, struct err *e)
{
	struct walk w = {.fn = fn, .arg = arg};
	int fd = openat(top_fd, ".", DIR_FLAGS);
	int rc;

	if (fd < 0)
		return err_sys(e, errno, "opening a folder");
	w.entries = malloc(READ_SIZE);
	if (w.entries == NULL) {
		(void)close(fd);
		return no_memory(e);
	}
	rc = enter(&w, fd, "", e);
	if (rc == 0)
		rc = walk_on(&w, e);
	for (size_t i = 0; i < w.depth; i++)
		if (w.stack[i].fd >= 0)
			(void)close(w.stack[i].fd);
	free(w.stack);
	free(w.entries);
	buf_free(&w.names);
	buf_free(&w.path);
	return rc;
}

/* ---- inodes -------------------------------------------------------------- */

static size_t inode_slot(const struct ws_inodes *s, ino_t ino)
{
	/* Knuth's multiplier: inode numbers come in rows. */
	size_t i =
	    (size_t)((uint64_t)ino * 0x9e3779b97f4a7c15u >> 20) & (s->cap - 1);

	while (s->slots[i] != 0 && s->slots[i] != ino)
		i = (i + 1) & (s->cap - 1);
	return i;
}

static int inodes_grow(struct ws_inodes *s)
{
	struct ws_inodes big = {
	    .cap = s->cap > 0 ? 2 * s->cap : 256, .count = s->count};

	if (4 * (s->count + 1) < 3 * s->cap)
		return 0;
	big.slots = calloc(big.cap, sizeof *big.slots);
	if (big.slots == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < s->cap; i++)
		if (s->slots[i] != 0)
			big.slots[inode_slot(&big, s->slots[i])] = s->slots[i];
	free(s->slots);
	*s = big;
	return 0;
}

int ws_inodes_add(struct ws_inodes *s, ino_t ino)
{
	size_t i;

	if (inodes_grow(s) < 0)
		return -ENOMEM;
	i = inode_slot(s, ino);
	if (s->slots[i] == ino)
		return 0;
	s->slots[i] = ino;
	s->count++;
	return 1;
}

void ws_inodes_free(struct ws_inodes *s)
{
	free(s->slots);
	*s = (struct ws_inodes){0};
}

/* ---- counting ------------------------------------------------------------ */

struct count {
	struct ws_usage usage;
	uint64_t max_bytes;
	struct ws_inodes linked; /* files that have more names */
};

#define ENOUGH 1

static int count_one(void *arg, const struct ws_item *item, struct err *e)
{
	struct count *c = arg;
	int fresh = 1;

	if (!S_ISDIR(item->st->st_mode) && item->st->st_nlink > 1)
		fresh = ws_inodes_add(&c->linked, item->st->st_ino);
	if (fresh < 0)
		return no_memory(e);
	c->usage.files++;
	if (fresh > 0)
		c->usage.bytes += (uint64_t)item->st->st_blocks * 512;
	return c->usage.bytes > c->max_bytes || c->usage.files > LIMIT_WS_FILES
		   ? ENOUGH
		   : 0;
}

static int count_once(int top_fd, struct count *c, struct err *e)
{
	struct stat st;

	if (fstat(top_fd, &st) != 0)
		return err_sys(e, errno, "stat");
	c->usage = (struct ws_usage){
	    .bytes = (uint64_t)st.st_blocks * 512, .files = 1};
	return ws_walk(top_fd, count_one, c, e);
}

int ws_count(
    int top_fd, uint64_t max_bytes, struct ws_usage *ret, struct err *e)
{
	int rc = -ESTALE;

	for (int i = 0; i < COUNT_TRIES && rc == -ESTALE; i++) {
		struct count c = {.max_bytes = max_bytes};

		rc = count_once(top_fd, &c, e);
		ws_inodes_free(&c.linked);
		if (rc >= 0)
			*ret = c.usage;
	}
	return rc < 0 ? rc : 0;
}
