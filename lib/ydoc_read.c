/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/ydoc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "lib/buf.h"
#include "lib/cleanup.h"
#include "lib/file.h"

/*
 * The reading half of ydoc.h. libyaml hands over events, one after the other;
 * each is either a key of the innermost open map, a value of the innermost open
 * map or list, or its end. The tree hangs on the document from the start, so a
 * failure frees it in one place.
 */

/* Bytes of a file's path in a message: room is left for what is wrong. */
#define FILE_SHOWN 100u

struct reader {
	yaml_parser_t parser;
	const uint8_t *data;
	struct ydoc *doc;
	size_t nodes;
	struct ydoc_node *open[YDOC_DEPTH_MAX]; /* maps, lists; outer first */
	size_t depth;
	struct ydoc_node *member; /* whose key was read, but not its value */
	struct err *e;
};

#define cleanup_event __attribute__((cleanup(yaml_event_delete)))

static int fail_at(struct reader *r, size_t line, const char *what)
{
	(void)err_set(r->e, ERR_INTERNAL, EINVAL, "%s", what);
	return err_wrap(r->e, "%s:%zu", r->doc->file, line + 1);
}

static int fail_node(
    struct reader *r, const struct ydoc_node *n, const char *what)
{
	(void)err_set(r->e, ERR_INTERNAL, EINVAL, "%s", what);
	return ydoc_wrap(r->doc, n, r->e);
}

static int fail_memory(struct reader *r)
{
	return err_sys(r->e, ENOMEM, "%s", r->doc->file);
}

/* libyaml reads ahead of its mark: for a bad byte, the line is counted here. */
static size_t problem_line(const struct reader *r)
{
	const yaml_parser_t *p = &r->parser;
	size_t line = 0;

	if (p->error != YAML_READER_ERROR)
		return p->problem_mark.line;
	for (size_t i = 0; i < p->problem_offset; i++)
		line += r->data[i] == '\n';
	return line;
}

static int fail_parser(struct reader *r)
{
	const yaml_parser_t *p = &r->parser;

	if (p->error == YAML_MEMORY_ERROR)
		return fail_memory(r);
	return fail_at(
	    r, problem_line(r), p->problem != NULL ? p->problem : "not YAML");
}

static int next_event(struct reader *r, yaml_event_t *ev)
{
	if (!yaml_parser_parse(&r->parser, ev))
		return fail_parser(r);
	return 0;
}

/* Anchors, aliases and tags are refused on whatever node carries them. */
static int check_event(struct reader *r, const yaml_event_t *ev)
{
	const yaml_char_t *anchor = NULL;
	const yaml_char_t *tag = NULL;

	if (ev->type == YAML_SCALAR_EVENT) {
		anchor = ev->data.scalar.anchor;
		tag = ev->data.scalar.tag;
	} else if (ev->type == YAML_SEQUENCE_START_EVENT) {
		anchor = ev->data.sequence_start.anchor;
		tag = ev->data.sequence_start.tag;
	} else if (ev->type == YAML_MAPPING_START_EVENT) {
		anchor = ev->data.mapping_start.anchor;
		tag = ev->data.mapping_start.tag;
	}
	if (anchor != NULL || ev->type == YAML_ALIAS_EVENT)
		return fail_at(r, ev->start_mark.line,
		    "anchors and aliases are not allowed");
	if (tag != NULL)
		return fail_at(r, ev->start_mark.line, "tags are not allowed");
	return 0;
}

/* The text of a scalar event, borrowed; NULL when it is not a text. */
static const char *event_text(struct reader *r, const yaml_event_t *ev)
{
	const char *text = (const char *)ev->data.scalar.value;

	if (strlen(text) == ev->data.scalar.length)
		return text;
	(void)fail_at(r, ev->start_mark.line, "a text must not contain NUL");
	return NULL;
}

/* One more, empty item of n, which stays where it is until the next one comes.
 * NULL: *r->e is set. */
static struct ydoc_node *add_item(
    struct reader *r, struct ydoc_node *n, size_t line)
{
	struct ydoc_node *items;

	if (n->count >= YDOC_ITEMS_MAX || r->nodes >= YDOC_NODES_MAX) {
		(void)fail_at(r, line,
		    "too much: at most 256 entries in a map or list, 2048 in "
		    "all");
		return NULL;
	}
	items = reallocarray(n->items, n->count + 1, sizeof(*items));
	if (items == NULL) {
		(void)fail_memory(r);
		return NULL;
	}
	r->nodes++;
	n->items = items;
	items += n->count++;
	*items = (struct ydoc_node){.line = (unsigned)line + 1};
	return items;
}

static bool is_key(const char *s)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
				      "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_.-";
	size_t len = strlen(s);

	return len > 0 && len <= YDOC_KEY_MAX && strspn(s, allowed) == len;
}

static int check_unique(
    struct reader *r, const struct ydoc_node *map, const struct ydoc_node *n)
{
	for (const struct ydoc_node *m = map->items; m < n; m++)
		if (strcmp(m->key, n->key) == 0)
			return fail_node(r, n, "the same key twice");
	return 0;
}

/* A key of map: r->member waits for its value. */
static int begin_member(
    struct reader *r, const yaml_event_t *ev, struct ydoc_node *map)
{
	size_t line = ev->start_mark.line;
	struct ydoc_node *n;
	const char *key;

	if (ev->type != YAML_SCALAR_EVENT)
		return fail_at(
		    r, line, "a key must be a word, not a map or list");
	key = event_text(r, ev);
	if (key == NULL)
		return -EINVAL;
	if (!is_key(key))
		return fail_at(r, line,
		    "a key must be 1 to 64 letters, digits, \"_\", \".\" or "
		    "\"-\"");
	n = add_item(r, map, line);
	if (n == NULL)
		return -r->e->code;
	if (asprintf(&n->path, "%s%s%s", map->path,
		map->path[0] != '\0' ? "." : "", key) < 0) {
		n->path = NULL;
		return fail_memory(r);
	}
	n->key = n->path + strlen(n->path) - strlen(key);
	r->member = n;
	return check_unique(r, map, n);
}

/* An entry of a list. NULL: *r->e is set. */
static struct ydoc_node *begin_entry(
    struct reader *r, const yaml_event_t *ev, struct ydoc_node *list)
{
	struct ydoc_node *n = add_item(r, list, ev->start_mark.line);

	if (n == NULL)
		return NULL;
	if (asprintf(&n->path, "%s[%zu]", list->path, list->count - 1) < 0) {
		n->path = NULL;
		(void)fail_memory(r);
		return NULL;
	}
	return n;
}

/* The value of n: a scalar is whole, a map or list is open from now on. */
static int begin_value(
    struct reader *r, const yaml_event_t *ev, struct ydoc_node *n)
{
	const char *text;

	if (ev->type != YAML_SCALAR_EVENT) {
		n->kind = ev->type == YAML_SEQUENCE_START_EVENT ? YDOC_LIST
								: YDOC_MAP;
		if (r->depth == YDOC_DEPTH_MAX)
			return fail_node(
			    r, n, "nested too deeply: at most 4 levels");
		r->open[r->depth++] = n;
		return 0;
	}
	n->kind = YDOC_SCALAR;
	n->plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	text = event_text(r, ev);
	if (text == NULL)
		return -EINVAL;
	n->text = strdup(text);
	return n->text != NULL ? 0 : fail_memory(r);
}

/* One event inside the root map. */
static int take_event(struct reader *r, const yaml_event_t *ev)
{
	struct ydoc_node *in = r->open[r->depth - 1];
	struct ydoc_node *n;
	int err = check_event(r, ev);

	if (err < 0)
		return err;
	if (ev->type == YAML_MAPPING_END_EVENT ||
	    ev->type == YAML_SEQUENCE_END_EVENT) {
		r->depth--;
		return 0;
	}
	if (in->kind == YDOC_MAP && r->member == NULL)
		return begin_member(r, ev, in);
	n = in->kind == YDOC_MAP ? r->member : begin_entry(r, ev, in);
	r->member = NULL;
	return n != NULL ? begin_value(r, ev, n) : -r->e->code;
}

/* Whether the document is there but says nothing ("---" alone). */
static bool is_nothing(const yaml_event_t *ev)
{
	return ev->type == YAML_SCALAR_EVENT && ev->data.scalar.length == 0 &&
	       ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static int read_document(struct reader *r)
{
	cleanup_event yaml_event_t first = {0};
	struct ydoc_node *root = &r->doc->root;
	int err = next_event(r, &first);

	if (err == 0)
		err = check_event(r, &first);
	if (err < 0 || is_nothing(&first))
		return err;
	if (first.type != YAML_MAPPING_START_EVENT)
		return fail_at(
		    r, first.start_mark.line, "must be a map of keys");
	root->line = (unsigned)first.start_mark.line + 1;
	err = begin_value(r, &first, root);
	while (err == 0 && r->depth > 0) {
		cleanup_event yaml_event_t ev = {0};

		err = next_event(r, &ev);
		if (err == 0)
			err = take_event(r, &ev);
	}
	return err;
}

static int read_stream(struct reader *r)
{
	for (bool seen = false;; seen = true) {
		cleanup_event yaml_event_t begin = {0};
		cleanup_event yaml_event_t end = {0};
		int err = next_event(r, &begin);

		if (err < 0 || begin.type == YAML_STREAM_END_EVENT)
			return err;
		if (seen)
			return fail_at(r, begin.start_mark.line,
			    "only one document is allowed");
		if (begin.data.document_start.tag_directives.start !=
		    begin.data.document_start.tag_directives.end)
			return fail_at(
			    r, begin.start_mark.line, "tags are not allowed");
		err = read_document(r);
		if (err < 0)
			return err;
		err = next_event(r, &end);
		if (err < 0)
			return err;
	}
}

static struct ydoc *doc_new(const char *file)
{
	struct ydoc *d = calloc(1, sizeof(*d));
	size_t len = strlen(file);
	int n;

	if (d == NULL)
		return NULL;
	d->root = (struct ydoc_node){.kind = YDOC_MAP, .line = 1};
	d->root.path = strdup("");
	if (len <= FILE_SHOWN)
		n = asprintf(&d->file, "%s", file);
	else
		n = asprintf(&d->file, "...%s", file + len - FILE_SHOWN);
	if (n < 0)
		d->file = NULL;
	if (d->file == NULL || d->root.path == NULL) {
		ydoc_free(d);
		return NULL;
	}
	return d;
}

static int read_bytes(
    struct ydoc *d, const uint8_t *data, size_t len, struct err *e)
{
	cleanup_event yaml_event_t start = {0};
	struct reader r = {.data = data, .doc = d, .e = e};
	int err;

	if (!yaml_parser_initialize(&r.parser))
		return fail_memory(&r);
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, data, len);
	err = next_event(&r, &start);
	if (err == 0)
		err = read_stream(&r);
	yaml_parser_delete(&r.parser);
	return err;
}

int ydoc_parse(const char *file, const uint8_t *data, size_t len,
    struct ydoc **ret, struct err *e)
{
	cleanup_ydoc struct ydoc *d = doc_new(file);
	int err;

	if (d == NULL)
		return err_sys(e, ENOMEM, "cannot read YAML");
	if (len > YDOC_BYTES_MAX)
		return err_set(e, ERR_INTERNAL, EFBIG,
		    "%s: is longer than %u bytes", d->file, YDOC_BYTES_MAX);
	err = read_bytes(d, data, len, e);
	if (err < 0)
		return err;
	*ret = take_ptr(&d);
	return 0;
}

int ydoc_load(const char *path, struct ydoc **ret, struct err *e)
{
	cleanup_buf struct buf data = {0};
	int err = file_read(AT_FDCWD, path, 0, YDOC_BYTES_MAX, &data, e);

	if (err < 0)
		return err_wrap(e, "%.100s", path);
	return ydoc_parse(path, data.data, data.len, ret, e);
}
