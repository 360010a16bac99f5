/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/hostname.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_label_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       is_digit(c) || c == '-' || c == '_';
}

static int refuse(struct err *e, const char *why)
{
	return err_set(e, ERR_INVALID_REQUEST, EINVAL, "%s", why);
}

/* The length of the label at s, which ends at a dot or at the end. */
static size_t label_len(const char *s, size_t left)
{
	const char *dot = memchr(s, '.', left);

	return dot != NULL ? (size_t)(dot - s) : left;
}

static int check_label(const char *s, size_t len, struct err *e)
{
	if (len == 0 || len > HOSTNAME_LABEL_MAX)
		return refuse(e, "must have 1 to 63 characters between dots");
	for (size_t i = 0; i < len; i++)
		if (!is_label_char(s[i]))
			return refuse(e,
			    "must be a host name, or \"*.\" and a host name: "
			    "letters, digits, \"-\" and \"_\"");
	if (s[0] == '-' || s[len - 1] == '-')
		return refuse(e, "must not have \"-\" beside a dot or an end");
	return 0;
}

static bool is_number(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!is_digit(s[i]))
			return false;
	return true;
}

static bool is_wildcard(const char *s, size_t len)
{
	return len >= 2 && s[0] == '*' && s[1] == '.';
}

int hostname_check_pattern(const char *s, size_t len, struct err *e)
{
	size_t n = 0;
	int rc;

	if (len == 0 || len > HOSTNAME_MAX)
		return refuse(e, "must have 1 to 253 characters");
	if (is_wildcard(s, len)) {
		s += 2;
		len -= 2;
	}
	for (;;) {
		n = label_len(s, len);
		if ((rc = check_label(s, n, e)) < 0)
			return rc;
		if (n == len)
			break;
		s += n + 1;
		len -= n + 1;
	}
	if (is_number(s, n))
		return refuse(e, "must be a name and not an address");
	return 0;
}

bool hostname_matches(
    const char *pattern, size_t pattern_len, const char *name, size_t len)
{
	if (!is_wildcard(pattern, pattern_len))
		return pattern_len == len &&
		       strncasecmp(pattern, name, len) == 0;
	pattern++; /* what is left begins with the dot */
	pattern_len--;
	return len > pattern_len &&
	       strncasecmp(pattern, name + len - pattern_len, pattern_len) == 0;
}
