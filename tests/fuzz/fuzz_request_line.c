/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables of a request, one a line of the input.
 *
 * LINK: fcgi/request.o fcgi/uri.o
 */
#include <string.h>

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
