/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/json_scan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/buf.h"
#include "lib/limits.h"
#include "lib/utf8.h"

enum want {
	WANT_VALUE,
	WANT_VALUE_OR_END, /* after '[' */
	WANT_NAME,
	WANT_NAME_OR_END, /* after '{' */
	WANT_COMMA_OR_END,
	WANT_NOTHING /* the object is closed */
};

/* A member name; its decoded form is in scan.names. */
struct name {
	size_t at; /* offset of its opening quote in the text */
	size_t start; /* in scan.names */
	size_t len;
};

struct level {
	bool object;
	size_t first_name; /* where its names start in scan.list */
	size_t first_byte; /* and their bytes in scan.names */
};

/*
 * The names of all open objects, outermost first, as a stack: a level's own are
 * at its top when it closes. They are sorted only then, so that ten thousand of
 * them do not cost their square.
 */
struct scan {
	const uint8_t *s;
	size_t len;
	size_t at;
	enum want want;
	unsigned depth;
	struct level levels[LIMIT_JSON_DEPTH];
	struct buf names;
	struct buf list; /* of struct name */
	unsigned values;
	unsigned objects;
	struct err *e;
};

/* "WHAT at offset AT"; the offset is what a client can look for. */
static int fail(struct scan *sc, size_t at, const char *what)
{
	return err_set(
	    sc->e, ERR_INVALID_JSON, EINVAL, "%s at offset %zu", what, at);
}

/* Something else than `expected` stands at the current offset. */
static int unexpected(struct scan *sc, const char *expected)
{
	uint8_t c;

	if (sc->at >= sc->len)
		return err_set(sc->e, ERR_INVALID_JSON, EINVAL,
		    "unexpected end at offset %zu: expected %s", sc->len,
		    expected);
	c = sc->s[sc->at];
	if (c > 0x20 && c < 0x7f)
		return err_set(sc->e, ERR_INVALID_JSON, EINVAL,
		    "unexpected byte at offset %zu: found %c, expected %s",
		    sc->at, c, expected);
	return err_set(sc->e, ERR_INVALID_JSON, EINVAL,
	    "unexpected byte at offset %zu: found 0x%02x, expected %s", sc->at,
	    c, expected);
}

/* The byte at the current offset; 0, which is legal nowhere, at the end. */
static uint8_t peek(const struct scan *sc)
{
	return sc->at < sc->len ? sc->s[sc->at] : 0;
}

static void skip_space(struct scan *sc)
{
	while (peek(sc) == ' ' || peek(sc) == '\t' || peek(sc) == '\n' ||
	       peek(sc) == '\r')
		sc->at++;
}

static void put_code_point(struct buf *out, uint32_t c)
{
	if (c < 0x80) {
		buf_putc(out, (char)c);
		return;
	}
	if (c < 0x800) {
		buf_putc(out, (char)(0xc0 | c >> 6));
	} else {
		if (c < 0x10000) {
			buf_putc(out, (char)(0xe0 | c >> 12));
		} else {
			buf_putc(out, (char)(0xf0 | c >> 18));
			buf_putc(out, (char)(0x80 | (c >> 12 & 0x3f)));
		}
		buf_putc(out, (char)(0x80 | (c >> 6 & 0x3f)));
	}
	buf_putc(out, (char)(0x80 | (c & 0x3f)));
}

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The four digits after \u. */
static int scan_hex4(struct scan *sc, uint32_t *ret)
{
	uint32_t v = 0;

	for (unsigned i = 0; i < 4; i++) {
		int digit = hex_digit(peek(sc));

		if (digit < 0)
			return unexpected(sc, "four hexadecimal digits");
		v = v << 4 | (uint32_t)digit;
		sc->at++;
	}
	*ret = v;
	return 0;
}

/* After "\u": a code point, of one escape or of a pair of surrogates. */
static int scan_unicode(struct scan *sc, uint32_t *ret)
{
	size_t escape = sc->at - 2;
	uint32_t high = 0;
	uint32_t low = 0;
	int r = scan_hex4(sc, &high);

	if (r < 0)
		return r;
	*ret = high;
	if (high < 0xd800 || high > 0xdfff)
		return 0;
	if (high > 0xdbff || sc->len - sc->at < 2 || sc->s[sc->at] != '\\' ||
	    sc->s[sc->at + 1] != 'u')
		return fail(sc, escape, "lone surrogate");
	sc->at += 2;
	r = scan_hex4(sc, &low);
	if (r < 0)
		return r;
	if (low < 0xdc00 || low > 0xdfff)
		return fail(sc, escape, "lone surrogate");
	*ret = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
	return 0;
}

/* After a backslash: the code point that the escape stands for. */
static int scan_escape(struct scan *sc, uint32_t *ret)
{
	static const char from[] = "\"\\/bfnrt";
	static const char to[] = "\"\\/\b\f\n\r\t";
	uint8_t c = peek(sc);
	const char *found = c != 0 ? strchr(from, c) : NULL;

	if (c == 'u') {
		sc->at++;
		return scan_unicode(sc, ret);
	}
	if (found == NULL)
		return unexpected(sc, "one of \" \\ / b f n r t u");
	*ret = (uint8_t)to[found - from];
	sc->at++;
	return 0;
}

/* A string from its opening quote on; with `decoded`, its value is appended. */
static int scan_string(struct scan *sc, struct buf *decoded)
{
	size_t start = ++sc->at;
	size_t bad;
	uint32_t c;

	while (sc->at < sc->len && sc->s[sc->at] != '"') {
		c = sc->s[sc->at];
		if (c < 0x20)
			return fail(sc, sc->at, "bare control character");
		sc->at++;
		if (c != '\\') {
			if (decoded != NULL)
				buf_putc(decoded, (char)c);
			continue;
		}
		int r = scan_escape(sc, &c);

		if (r < 0)
			return r;
		if (decoded != NULL && c == 0)
			return fail(sc, sc->at - 6, "NUL in a member name");
		if (decoded != NULL)
			put_code_point(decoded, c);
	}
	if (!utf8_valid(sc->s + start, sc->at - start, &bad))
		return fail(sc, start + bad, "invalid UTF-8");
	if (sc->at == sc->len)
		return unexpected(sc, "\" at the end of the string");
	sc->at++;
	return 0;
}

static bool skip_digits(struct scan *sc)
{
	size_t start = sc->at;

	while (peek(sc) >= '0' && peek(sc) <= '9')
		sc->at++;
	return sc->at > start;
}

static int scan_number(struct scan *sc)
{
	if (peek(sc) == '-')
		sc->at++;
	if (peek(sc) == '0') {
		sc->at++;
		if (peek(sc) >= '0' && peek(sc) <= '9')
			return fail(sc, sc->at - 1, "leading zero");
	} else if (!skip_digits(sc)) {
		return unexpected(sc, "a digit");
	}
	if (peek(sc) == '.') {
		sc->at++;
		if (!skip_digits(sc))
			return unexpected(sc, "a digit");
	}
	if (peek(sc) == 'e' || peek(sc) == 'E') {
		sc->at++;
		if (peek(sc) == '+' || peek(sc) == '-')
			sc->at++;
		if (!skip_digits(sc))
			return unexpected(sc, "a digit");
	}
	return 0;
}

static int scan_literal(struct scan *sc, const char *word)
{
	size_t n = strlen(word);

	if (sc->len - sc->at < n || memcmp(sc->s + sc->at, word, n) != 0)
		return unexpected(sc, word);
	sc->at += n;
	return 0;
}

static int open_level(struct scan *sc, bool object)
{
	if (sc->depth == LIMIT_JSON_DEPTH)
		return err_set(sc->e, ERR_INVALID_JSON, EINVAL,
		    "more than %u levels at offset %zu", LIMIT_JSON_DEPTH,
		    sc->at);
	if (object && ++sc->objects > LIMIT_JSON_OBJECTS)
		return err_set(sc->e, ERR_INVALID_JSON, EINVAL,
		    "more than %u objects at offset %zu", LIMIT_JSON_OBJECTS,
		    sc->at);
	sc->levels[sc->depth++] = (struct level){
	    .object = object,
	    .first_name = sc->list.len,
	    .first_byte = sc->names.len,
	};
	sc->at++;
	sc->want = object ? WANT_NAME_OR_END : WANT_VALUE_OR_END;
	return 0;
}

static int compare_names(const void *pa, const void *pb, void *names)
{
	const struct name *a = pa;
	const struct name *b = pb;
	const uint8_t *bytes = names;
	size_t n = a->len < b->len ? a->len : b->len;
	int r = n > 0 ? memcmp(bytes + a->start, bytes + b->start, n) : 0;

	if (r != 0)
		return r;
	return (a->len > b->len) - (a->len < b->len);
}

/* The names of the level that closes: none twice. */
static int check_names(struct scan *sc, const struct level *l)
{
	size_t n = (sc->list.len - l->first_name) / sizeof(struct name);
	size_t twice = SIZE_MAX;
	struct name *own;

	if (n < 2)
		return 0;
	own = (struct name *)(void *)(sc->list.data + l->first_name);
	qsort_r(own, n, sizeof(*own), compare_names, sc->names.data);
	for (size_t i = 1; i < n; i++) {
		const struct name *a = &own[i - 1];
		const struct name *b = &own[i];
		size_t later = a->at > b->at ? a->at : b->at;

		if (later < twice && compare_names(a, b, sc->names.data) == 0)
			twice = later;
	}
	if (twice != SIZE_MAX)
		return fail(sc, twice, "duplicate member name");
	return 0;
}

static int close_level(struct scan *sc)
{
	const struct level *l = &sc->levels[--sc->depth];
	int r = l->object ? check_names(sc, l) : 0;

	sc->list.len = l->first_name;
	sc->names.len = l->first_byte;
	sc->at++;
	sc->want = sc->depth > 0 ? WANT_COMMA_OR_END : WANT_NOTHING;
	return r;
}

static int scan_value(struct scan *sc)
{
	uint8_t c = peek(sc);

	if (++sc->values > LIMIT_JSON_VALUES)
		return err_set(sc->e, ERR_INVALID_JSON, EINVAL,
		    "more than %u values at offset %zu", LIMIT_JSON_VALUES,
		    sc->at);
	sc->want = WANT_COMMA_OR_END;
	switch (c) {
	case '{':
	case '[':
		return open_level(sc, c == '{');
	case '"':
		return scan_string(sc, NULL);
	case 't':
		return scan_literal(sc, "true");
	case 'f':
		return scan_literal(sc, "false");
	case 'n':
		return scan_literal(sc, "null");
	default:
		if (c == '-' || (c >= '0' && c <= '9'))
			return scan_number(sc);
		return unexpected(sc, "a value");
	}
}

/* A member's name and its colon. */
static int scan_name(struct scan *sc)
{
	struct name n = {.at = sc->at, .start = sc->names.len};
	int r;

	if (peek(sc) != '"')
		return unexpected(sc, "a member name in double quotes");
	r = scan_string(sc, &sc->names);
	if (r < 0)
		return r;
	n.len = sc->names.len - n.start;
	buf_put(&sc->list, &n, sizeof(n));
	if (sc->names.failed || sc->list.failed)
		return err_sys(sc->e, ENOMEM, "reading JSON");
	skip_space(sc);
	if (peek(sc) != ':')
		return unexpected(sc, ":");
	sc->at++;
	sc->want = WANT_VALUE;
	return 0;
}

static int scan_comma(struct scan *sc, bool object)
{
	if (peek(sc) != ',')
		return unexpected(sc, object ? ", or }" : ", or ]");
	sc->at++;
	sc->want = object ? WANT_NAME : WANT_VALUE;
	return 0;
}

/* One token, and what may follow it. */
static int step(struct scan *sc)
{
	const struct level *l = &sc->levels[sc->depth - 1];
	uint8_t end = l->object ? '}' : ']';

	skip_space(sc);
	switch (sc->want) {
	case WANT_NAME_OR_END:
		if (peek(sc) == end)
			return close_level(sc);
		return scan_name(sc);
	case WANT_NAME:
		return scan_name(sc);
	case WANT_VALUE_OR_END:
		if (peek(sc) == end)
			return close_level(sc);
		return scan_value(sc);
	case WANT_VALUE:
		return scan_value(sc);
	case WANT_COMMA_OR_END:
		if (peek(sc) == end)
			return close_level(sc);
		return scan_comma(sc, l->object);
	case WANT_NOTHING:
		break;
	}
	return 0;
}

static int scan_all(struct scan *sc)
{
	int r;

	if (sc->len >= 3 && memcmp(sc->s, "\xef\xbb\xbf", 3) == 0)
		return fail(sc, 0, "byte order mark");
	skip_space(sc);
	if (peek(sc) != '{')
		return unexpected(sc, "an object");
	r = scan_value(sc);
	while (r == 0 && sc->want != WANT_NOTHING)
		r = step(sc);
	if (r < 0)
		return r;
	skip_space(sc);
	return sc->at < sc->len ? unexpected(sc, "the end") : 0;
}

int json_scan(const uint8_t *data, size_t len, struct err *e)
{
	struct scan sc = {.s = data, .len = len, .e = e};
	int r = scan_all(&sc);

	buf_free(&sc.list);
	buf_free(&sc.names);
	return r;
}
