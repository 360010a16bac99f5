/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/cond.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* The program never sets a locale: names of days and months are English. */
void http_date(int64_t t, char ret[HTTP_DATE_SIZE])
{
	time_t seconds = (time_t)t;
	struct tm tm;

	if (t < 0 || gmtime_r(&seconds, &tm) == NULL || tm.tm_year > 8099 ||
	    strftime(ret, HTTP_DATE_SIZE, "%a, %d %b %Y %H:%M:%S GMT", &tm) ==
		0)
		ret[0] = '\0';
}

int64_t http_date_parse(const char *text)
{
	static const char *const forms[] = {
	    "%a, %d %b %Y %H:%M:%S GMT", /* IMF-fixdate */
	    "%a, %d-%b-%y %H:%M:%S GMT", /* RFC 850 */
	    "%a %b %d %H:%M:%S %Y", /* asctime() */
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct tm tm = {0};
		const char *end = strptime(text, forms[i], &tm);

		if (end != NULL && *end == '\0')
			return (int64_t)timegm(&tm);
	}
	return -1;
}

static bool is_weak(const char *etag)
{
	return etag[0] == 'W' && etag[1] == '/';
}

static const char *opaque(const char *etag)
{
	return is_weak(etag) ? etag + 2 : etag;
}

/* The tag at s compared with etag; where it ends, NULL when it is none. */
static const char *compare(
    const char *s, const char *etag, bool strong, bool *ret_same)
{
	const char *begin = opaque(s);
	const char *mine = opaque(etag);
	const char *end;
	size_t len;

	if (*begin != '"')
		return NULL;
	end = strchr(begin + 1, '"');
	if (end == NULL)
		return NULL;
	len = (size_t)(end - begin) + 1;
	*ret_same = strncmp(begin, mine, len) == 0 && mine[len] == '\0' &&
		    !(strong && (is_weak(s) || is_weak(etag)));
	return end + 1;
}

bool cond_lists(const char *list, const char *etag, bool strong)
{
	static const char gaps[] = " \t,";
	const char *s = list + strspn(list, gaps);
	bool same = false;

	if (strcmp(s, "*") == 0)
		return true;
	while (s != NULL && *s != '\0' && !same) {
		s = compare(s, etag, strong, &same);
		if (s != NULL)
			s += strspn(s, gaps);
	}
	return same;
}

/* Section 13.2.2, steps 1 and 2: what must be, or nothing is done. */
static bool is_refused(const struct request *q, const struct validators *v)
{
	int64_t date;

	if (q->if_match != NULL)
		return v == NULL || !cond_lists(q->if_match, v->etag, true);
	if (q->if_unmodified_since == NULL || v == NULL || v->modified < 0)
		return false;
	date = http_date_parse(q->if_unmodified_since);
	return date >= 0 && v->modified > date;
}

/* Steps 3 and 4: whether the client has it. */
static bool is_had(const struct request *q, const struct validators *v)
{
	if (v == NULL)
		return false;
	if (q->if_none_match != NULL)
		return cond_lists(q->if_none_match, v->etag, false);
	return q->if_modified_since != NULL && v->modified >= 0 &&
	       http_date_parse(q->if_modified_since) >= v->modified;
}

enum cond cond_check(const struct request *q, const struct validators *v)
{
	bool reads = q->method == METHOD_GET || q->method == METHOD_HEAD;

	if (is_refused(q, v))
		return COND_FAILED;
	if (!reads && q->if_none_match == NULL)
		return COND_GO; /* If-Modified-Since is of GET and HEAD */
	if (!is_had(q, v))
		return COND_GO;
	return reads ? COND_NOT_MODIFIED : COND_FAILED;
}

/* Whether the version that the client has a part of is this one. A date tells
 * only when a second has passed since (section 8.8.2.2). */
static bool is_same_version(const char *if_range, const struct validators *v)
{
	if (if_range[0] == '"' || is_weak(if_range)) {
		bool same = false;

		(void)compare(if_range, v->etag, true, &same);
		return same;
	}
	return v->modified >= 0 && v->now > v->modified &&
	       http_date_parse(if_range) == v->modified;
}

/* Digits at *s, which moves behind them; beyond 64 bits is the largest. */
static bool take_number(const char **s, uint64_t *ret)
{
	const char *p = *s;
	uint64_t n = 0;

	for (; *p >= '0' && *p <= '9'; p++) {
		uint64_t digit = (uint64_t)(*p - '0');

		n = n > (UINT64_MAX - digit) / 10 ? UINT64_MAX : n * 10 + digit;
	}
	if (p == *s)
		return false;
	*s = p;
	*ret = n;
	return true;
}

/* One range of the list at *s, cut to the size: RANGE_ALL when it is none. */
static enum range_kind take_range(
    const char **s, uint64_t size, struct range *ret)
{
	uint64_t first = 0;
	uint64_t last = UINT64_MAX;
	bool has_first = take_number(s, &first);

	if (**s != '-')
		return RANGE_ALL;
	(*s)++;
	if (!take_number(s, &last) && !has_first)
		return RANGE_ALL;
	if (!has_first) { /* so many bytes at the end */
		first = last < size ? size - last : 0;
		if (last == 0)
			first = size;
		last = UINT64_MAX;
	}
	if (first > last)
		return RANGE_ALL;
	if (first >= size)
		return RANGE_NONE;
	ret->first = first;
	ret->len = (last < size ? last + 1 : size) - first;
	return RANGE_PART;
}

enum range_kind cond_range(const struct request *q, const struct validators *v,
    uint64_t size, struct range *ret)
{
	static const char unit[] = "bytes=";
	static const char gaps[] = " \t,";
	const char *s = q->range;
	enum range_kind kind;

	*ret = (struct range){0, size};
	if (s == NULL || q->method != METHOD_GET ||
	    strncasecmp(s, unit, sizeof(unit) - 1) != 0 ||
	    (q->if_range != NULL && !is_same_version(q->if_range, v)))
		return RANGE_ALL;
	s += sizeof(unit) - 1;
	s += strspn(s, gaps);
	kind = take_range(&s, size, ret);
	if (kind == RANGE_ALL || s[strspn(s, gaps)] != '\0') {
		*ret = (struct range){0, size};
		return RANGE_ALL;
	}
	return kind;
}
