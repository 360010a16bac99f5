/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <string.h>

#include "lib/limits.h"
#include "lib/path.h"
#include "tests/fuzz/fuzz.h"

/* "/NAME/" has none of the forms that could leave a folder. */
static void check_name(const uint8_t *name, size_t len)
{
	char text[LIMIT_NAME + 3];
	struct err e;
	int r = path_check_name((const char *)name, len, &e);

	if (r < 0) {
		require(e.kind == ERR_INVALID_FILE);
		return;
	}
	require(len > 0 && len <= LIMIT_NAME);
	require(memchr(name, '\0', len) == NULL);
	(void)snprintf(
	    text, sizeof(text), "/%.*s/", (int)len, (const char *)name);
	require(strlen(text) == len + 2);
	require(strstr(text, "//") == NULL);
	require(strstr(text, "/./") == NULL);
	require(strstr(text, "/../") == NULL);
}

/* What was folded stays as it is, and every component is a name. */
static void check_fold(const uint8_t *path, size_t len)
{
	cleanup_buf struct buf once = {0};
	cleanup_buf struct buf twice = {0};
	struct err e;

	if (path_fold((const char *)path, len, &once, &e) < 0) {
		require(e.kind == ERR_INVALID_PATH);
		return;
	}
	require(once.len <= len);
	if (once.len > 0 && once.len <= LIMIT_NAME)
		require(path_check_name(
			    (const char *)once.data, once.len, &e) == 0);
	require(path_fold((const char *)once.data, once.len, &twice, &e) == 0);
	require(twice.len == once.len);
	require(once.len == 0 || memcmp(once.data, twice.data, once.len) == 0);
}

/* Whether one of them is the other or a folder of it, said in another way. */
static bool collide(const char *a, const char *b)
{
	char with_a[LIMIT_NAME + 2];
	char with_b[LIMIT_NAME + 2];

	(void)snprintf(with_a, sizeof(with_a), "%s/", a);
	(void)snprintf(with_b, sizeof(with_b), "%s/", b);
	return strncmp(with_a, with_b, strlen(with_a)) == 0 ||
	       strncmp(with_a, with_b, strlen(with_b)) == 0;
}

static void check_set(const char *const *names, size_t n)
{
	struct err e;
	size_t later = n;
	bool found = false;
	int r = path_check_set(names, n, &later, &e);

	for (size_t i = 1; i < n && !found; i++) {
		for (size_t j = 0; j < i && !found; j++)
			found = collide(names[j], names[i]);
		if (found)
			require(r < 0 && later == i);
	}
	require(found || r == 0);
}

/* The lines of the input are the names. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *names[LIMIT_FILES];
	size_t n = 0;
	char *text;
	char *line;
	char *rest;
	struct err e;

	check_name(data, size);
	check_fold(data, size);
	text = malloc(size + 1);
	require(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	rest = text;
	while (n < LIMIT_FILES && (line = strsep(&rest, "\n")) != NULL)
		if (path_check_name(line, strlen(line), &e) == 0)
			names[n++] = line;
	check_set(names, n);
	free(text);
	return 0;
}
