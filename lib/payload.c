/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/payload.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/limits.h"
#include "lib/path.h"

/*
 * Both ends are ours, but neither trusts the other: whatever a decoder cannot
 * vouch for refuses the payload whole. Arrays are made only for counts that the
 * payload has bytes for.
 */
#define BLOB_MIN 4u /* bytes of an empty string in a payload */
#define FILE_MIN 8u /* of two */

int payload_refuse(struct err *e, const char *what, const char *why)
{
	return err_set(e, ERR_INTERNAL, EPROTO, "%s: %s", what, why);
}

/* The end of each decoder: no byte left, none lacking. */
int payload_finish(const struct reader *r, const char *what, struct err *e)
{
	if (reader_done(r))
		return 0;
	return payload_refuse(e, what,
	    r->bad ? "cut short or a value out of bounds" : "too long");
}

void put_blob(struct buf *b, const struct blob *s)
{
	put_bytes(b, s->data, s->len);
}

struct blob get_blob(struct reader *r)
{
	struct blob s;

	s.data = get_bytes(r, &s.len);
	return s;
}

static void put_count(struct buf *b, size_t n)
{
	assert(n <= UINT32_MAX);
	put_u32(b, (uint32_t)n);
}

/* A count of items of at least item_min bytes each, at most max of them. */
static size_t get_count(struct reader *r, size_t max, size_t item_min)
{
	uint32_t n = get_u32(r);

	if (n > max || n > r->left / item_min) {
		r->bad = true;
		return 0;
	}
	return n;
}

void put_blobs(struct buf *b, const struct blob *s, size_t n)
{
	put_count(b, n);
	for (size_t i = 0; i < n; i++)
		put_blob(b, &s[i]);
}

bool blob_has_nul(const struct blob *s)
{
	return s->len > 0 && memchr(s->data, '\0', s->len) != NULL;
}

static bool is_id_char(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '_' || c == '-';
}

bool blob_is_id(const struct blob *s)
{
	for (size_t i = 0; i < s->len; i++)
		if (!is_id_char(s->data[i]))
			return false;
	return s->len > 0 && s->len <= LIMIT_ID;
}

bool blob_is_word(const struct blob *s)
{
	for (size_t i = 0; i < s->len; i++)
		if (s->data[i] <= ' ' || s->data[i] > '~')
			return false;
	return s->len > 0 && s->len <= LIMIT_ID;
}

void get_text(struct reader *r, char *ret, size_t size)
{
	size_t len;
	const uint8_t *s = get_bytes(r, &len);

	if (len >= size || (len > 0 && memchr(s, '\0', len) != NULL))
		r->bad = true;
	else if (len > 0)
		memcpy(ret, s, len);
}

/* Strings for exec: as many as stand there, at most max, none with NUL in it. */
int get_strings(struct reader *r, size_t max, const char *what,
    struct blob **ret, size_t *ret_n, struct err *e)
{
	size_t n = get_count(r, max, BLOB_MIN);
	struct blob *s;

	if (n == 0)
		return 0; /* none, or r is bad and payload_payload_finish() says so */
	s = calloc(n, sizeof(*s));
	if (s == NULL)
		return err_sys(e, ENOMEM, "%s", what);
	*ret = s;
	*ret_n = n;
	for (size_t i = 0; i < n; i++) {
		s[i] = get_blob(r);
		if (blob_has_nul(&s[i]))
			return payload_refuse(e, what, "NUL in a string");
	}
	return 0;
}

void put_files(struct buf *b, const struct job_file *f, size_t n)
{
	put_count(b, n);
	for (size_t i = 0; i < n; i++) {
		put_blob(b, &f[i].name);
		put_blob(b, &f[i].content);
	}
}

int get_files(struct reader *r, const char *what, struct job_file **ret,
    size_t *ret_n, struct err *e)
{
	size_t n = get_count(r, LIMIT_FILES, FILE_MIN);
	struct job_file *f;

	if (n == 0)
		return 0;
	f = calloc(n, sizeof(*f));
	if (f == NULL)
		return err_sys(e, ENOMEM, "%s", what);
	*ret = f;
	*ret_n = n;
	for (size_t i = 0; i < n; i++) {
		f[i].name = get_blob(r);
		f[i].content = get_blob(r);
		if (r->bad)
			return 0;
		if (path_check_name(
			(const char *)f[i].name.data, f[i].name.len, e) < 0)
			return err_wrap(e, "%s: files[%zu].name", what, i);
	}
	return 0;
}

/* "KEY=value" with a key of at least one byte. */
static bool is_env(const struct blob *s)
{
	return s->len > 0 && s->data[0] != '=' &&
	       memchr(s->data, '=', s->len) != NULL;
}

int payload_check_program(const char *what, const struct blob *cwd,
    const struct blob *run, size_t run_count, const struct blob *env,
    size_t env_count, struct err *e)
{
	if (cwd->len == 0 || cwd->len > LIMIT_NAME || cwd->data[0] != '/' ||
	    blob_has_nul(cwd))
		return payload_refuse(e, what, "bad working directory");
	if (run_count == 0 || run[0].len == 0)
		return payload_refuse(e, what, "nothing to run");
	for (size_t i = 0; i < env_count; i++)
		if (!is_env(&env[i]))
			return payload_refuse(e, what, "env without KEY=");
	return 0;
}

int payload_check_modules(
    const char *what, const struct blob *names, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (names[i].len == 0 || names[i].len > LIMIT_PRELOAD_NAME)
			return payload_refuse(e, what, "bad name of a module");
	return 0;
}
