/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request from its variables; its target in parts.
 *
 * LINK: fcgi/request.o fcgi/uri.o
 */
#include <stdio.h>
#include <string.h>

#include "fcgi/request.h"
#include "tests/unit/unit.h"

static struct uri uri; /* too large for some stacks */
static struct request req;

static int parse(const char *s, struct err *e)
{
	return uri_parse(&uri, s, strlen(s), e);
}

static void test_segments(void **state)
{
	static const struct {
		const char *uri;
		const char *segments[4];
	} good[] = {
	    {"/", {""}},
	    {"/a", {"a"}},
	    {"/a/", {"a", ""}},
	    {"//a", {"", "a"}},
	    {"/a/b%2Fc?d/e", {"a", "b/c"}},
	    {"/%2e%2E/%25zz", {"..", "%zz"}},
	    {"/a+b", {"a+b"}},
	    {"/a#b;c", {"a#b;c"}},
	    {"http://host:1/a", {"a"}},
	    {"HTTPS://host?q", {""}},
	    {"http://", {""}},
	    {"/http://x", {"http:", "", "x"}},
	    {"/\xc3\xa9\xff", {"\xc3\xa9\xff"}},
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		size_t n = 0;

		while (n < 4 && good[i].segments[n] != NULL)
			n++;
		assert_int_equal(parse(good[i].uri, &e), 0);
		assert_int_equal(uri.segment_count, n);
		for (size_t j = 0; j < n; j++)
			assert_string_equal(
			    uri.segments[j].text, good[i].segments[j]);
	}
	assert_int_equal(parse("/a%00b", &e), 0);
	assert_int_equal(uri.segments[0].len, 3);
	assert_memory_equal(uri.segments[0].text, "a\0b", 4);
}

static void test_path_and_query_stay_raw(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(parse("http://h/a%20b?c=%zz&?d", &e), 0);
	assert_int_equal(uri.path_len, 6);
	assert_memory_equal(uri.path, "/a%20b", 6);
	assert_int_equal(uri.query_len, 8);
	assert_memory_equal(uri.query, "c=%zz&?d", 8);
}

static void test_refused(void **state)
{
	static const char *const bad[] = {
	    "", "a", "*", "?", "/%", "/%1", "/%g1", "/%1g", "/a/%", "ftp://a/"};
	static char text[URI_MAX + 1];
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_true(parse(bad[i], &e) < 0);
		assert_int_equal(e.kind, ERR_INVALID_REQUEST);
	}
	memset(text, 'a', URI_MAX);
	text[0] = '/';
	assert_true(uri_parse(&uri, text, URI_MAX, &e) < 0);
	assert_contains(e.msg, "8192 bytes");
	assert_int_equal(uri_parse(&uri, text, URI_MAX - 1, &e), 0);
	assert_int_equal(uri.segments[0].len, URI_MAX - 2);
	memset(text, '/', URI_MAX);
	assert_true(uri_parse(&uri, text, URI_SEGMENTS_MAX + 1, &e) < 0);
	assert_int_equal(e.kind, ERR_NOT_FOUND);
	assert_int_equal(uri_parse(&uri, text, URI_SEGMENTS_MAX, &e), 0);
	assert_int_equal(uri.segment_count, URI_SEGMENTS_MAX);
}

static void test_query(void **state)
{
	char value[5];
	size_t len;
	struct err e;

	(void)state;
	assert_int_equal(
	    parse("/?a=1&bb=%32+x&c&d=&a=2&e=%4&f=12345&g=a%00b", &e), 0);
	assert_int_equal(uri_query_get(&uri, "a", value, 5, &len, &e), 1);
	assert_string_equal(value, "1");
	assert_int_equal(uri_query_get(&uri, "bb", value, 5, &len, &e), 1);
	assert_string_equal(value, "2 x");
	assert_int_equal(uri_query_get(&uri, "c", value, 5, &len, &e), 1);
	assert_string_equal(value, "");
	assert_int_equal(uri_query_get(&uri, "d", value, 5, &len, &e), 1);
	assert_string_equal(value, "");
	assert_int_equal(uri_query_get(&uri, "b", value, 5, &len, &e), 0);
	assert_true(uri_query_get(&uri, "e", value, 5, &len, &e) < 0);
	assert_true(uri_query_get(&uri, "f", value, 5, &len, &e) < 0);
	assert_int_equal(uri_query_get(&uri, "g", value, 5, &len, &e), 1);
	assert_int_equal(len, 3);
	assert_memory_equal(value, "a\0b", 4);
	assert_int_equal(parse("/", &e), 0);
	assert_int_equal(uri_query_get(&uri, "a", value, 5, &len, &e), 0);
}

/* The variables of lines, behind a REQUEST_URI. */
static int init(const char *lines, struct err *e)
{
	static char text[512];
	char *envp[16];
	size_t n = 0;
	int len = snprintf(text, sizeof(text), "REQUEST_URI=/\n%s", lines);

	assert_in_range(len, 0, sizeof(text) - 1);
	for (char *line = text; line != NULL; n++) {
		envp[n] = line;
		line = strchr(line, '\n');
		if (line != NULL)
			*line++ = '\0';
		assert_in_range(n, 0, ARRAY_LEN(envp) - 2);
	}
	envp[n] = NULL;
	return request_init(&req, envp, e);
}

static int64_t length_of(const char *variable)
{
	struct err e;

	assert_int_equal(init(variable, &e), 0);
	return req.content_length;
}

static void test_variables(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(
	    init("REQUEST_METHOD=POST\nREMOTE_ADDR=::1\nHTTP_ACCEPT=a\n"
		 "HTTP_ACCEPT_LANGUAGE=b\nHTTP_X_API_KEY=c=d\n"
		 "HTTP_AUTHORIZATION=\nNOTHING\n=x\n",
		&e),
	    0);
	assert_int_equal(req.method, METHOD_POST);
	assert_string_equal(req.remote_addr, "::1");
	assert_string_equal(req.accept, "a");
	assert_string_equal(req.api_key, "c=d");
	assert_string_equal(req.authorization, "");
	assert_false(req.auth_repeated);
	assert_int_equal(req.content_length, -1);
	assert_int_equal(init("HTTP_X_API_KEY=a\nHTTP_X_API_KEY=a", &e), 0);
	assert_true(req.auth_repeated);
	assert_int_equal(req.method, METHOD_OTHER);
	assert_string_equal(req.remote_addr, "");
	assert_int_equal(length_of("CONTENT_LENGTH="), -1);
	assert_int_equal(length_of("CONTENT_LENGTH=-1"), -1);
	assert_int_equal(length_of("CONTENT_LENGTH=+1"), -1);
	assert_int_equal(length_of("CONTENT_LENGTH= 1"), -1);
	assert_int_equal(length_of("CONTENT_LENGTH=1x"), -1);
	assert_int_equal(length_of("CONTENT_LENGTH=012"), 12);
	assert_int_equal(
	    length_of("CONTENT_LENGTH=99999999999999999999999"), -1);
}

static void test_nothing_at_all(void **state)
{
	char *const nothing[] = {NULL};
	struct err e;

	(void)state;
	assert_true(request_init(&req, nothing, &e) < 0);
	assert_string_equal(req.method_text, "");
	assert_int_equal(req.uri.path_len, 0);
	assert_false(request_wants_stream(&req));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_segments),
	    cmocka_unit_test(test_path_and_query_stay_raw),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_query),
	    cmocka_unit_test(test_variables),
	    cmocka_unit_test(test_nothing_at_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
