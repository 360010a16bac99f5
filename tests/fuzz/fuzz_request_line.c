/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables of a request, one a line of the input.
 *
 * LINK: fcgi/request.o fcgi/uri.o fcgi/cond.o fcgi/disposition.o
 */
#include <string.h>

#include "fcgi/cond.h"
#include "fcgi/disposition.h"
#include "fcgi/request.h"
#include "tests/fuzz/fuzz.h"

#define LINES_MAX 64

/* A segment lies inside the text, ends with NUL, and is no longer than the part
 * of the path that it came from. */
static void check_uri(const struct uri *u)
{
	size_t total = 0;

	require(u->segment_count >= 1 && u->segment_count <= URI_SEGMENTS_MAX);
	for (size_t i = 0; i < u->segment_count; i++) {
		const struct uri_segment *s = &u->segments[i];

		require(s->text >= u->text);
		require(s->text + s->len < u->text + sizeof(u->text));
		require(s->text[s->len] == '\0');
		total += s->len + 1;
	}
	require(total <= u->path_len);
	require(u->path_len < URI_MAX && u->path[0] == '/');
	require(memchr(u->path, '?', u->path_len) == NULL);
}

static void check_query(const struct uri *u)
{
	static const char *const names[] = {"stream", "", "a", "path"};
	struct err e;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char value[16];
		size_t len;
		int r;

		memset(value, 'x', sizeof(value));
		r = uri_query_get(u, names[i], value, sizeof(value), &len, &e);
		require(r <= 1);
		require(r != 1 || (len < sizeof(value) && value[len] == '\0'));
	}
}

/* A part lies inside, and is of what was asked for. */
static void check_conditions(const struct request *q)
{
	static const struct validators v = {"\"abc\"", 784111777, 784111999};
	static const uint64_t sizes[] = {0, 1, 100, UINT64_MAX / 2};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct range r;
		enum range_kind kind = cond_range(q, &v, sizes[i], &r);

		require(r.first <= sizes[i] && r.len <= sizes[i] - r.first);
		require(kind != RANGE_PART || r.len > 0);
		require(kind != RANGE_ALL || r.len == sizes[i]);
	}
	require(cond_check(q, NULL) != COND_NOT_MODIFIED);
	(void)cond_check(q, &v);
}

/* One header line, whatever the name is. */
static void check_disposition(const struct uri *u)
{
	const struct uri_segment *s = &u->segments[u->segment_count - 1];
	struct buf out = {0};

	disposition_put(&out, s->text, s->len, ".zip");
	require(!out.failed && out.len > 2);
	for (size_t i = 0; i < out.len - 2; i++)
		require(out.data[i] >= ' ' && out.data[i] <= '~');
	require(memcmp(out.data + out.len - 2, "\r\n", 2) == 0);
	buf_free(&out);
}

static void check(char *const *envp)
{
	static struct request q;
	struct err e;
	int r = request_init(&q, envp, &e);

	require(q.method_text != NULL && q.remote_addr != NULL);
	require(q.content_length >= -1);
	if (r < 0) {
		require(
		    e.kind == ERR_INVALID_REQUEST || e.kind == ERR_NOT_FOUND);
		return;
	}
	check_uri(&q.uri);
	check_query(&q.uri);
	check_conditions(&q);
	check_disposition(&q.uri);
	(void)request_wants_stream(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	char *envp[LINES_MAX + 1];
	size_t n = 0;

	if (text == NULL)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	for (char *line = text; line != NULL && n < LINES_MAX;) {
		char *next = strchr(line, '\n');

		if (next != NULL)
			*next++ = '\0';
		envp[n++] = line;
		line = next;
	}
	envp[n] = NULL;
	check(envp);
	free(text);
	return 0;
}
