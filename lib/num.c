/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/num.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Any 19 digits fit 64 bits. */
#define DIGITS_MAX 19u

/* The number in s[0..len); false when it is not one. */
static bool parse_digits(const char *s, size_t len, uint64_t *ret)
{
	uint64_t v = 0;

	if (len == 0 || len > DIGITS_MAX || (len > 1 && s[0] == '0'))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(s[i] - '0');
	}
	*ret = v;
	return true;
}

int num_parse(
    const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct err *e)
{
	uint64_t v;

	if (!parse_digits(s, strlen(s), &v) || v < min || v > max)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "must be a whole number from %" PRIu64 " to %" PRIu64, min,
		    max);
	*ret = v;
	return 0;
}

/* The decimals behind the point, in thousandths; false when they are none. */
static bool parse_decimals(const char *s, uint32_t *ret)
{
	uint32_t unit = 100;
	uint32_t v = 0;

	if (*s == '\0' || strlen(s) > 3)
		return false;
	for (; *s != '\0'; s++, unit /= 10) {
		if (*s < '0' || *s > '9')
			return false;
		v += (uint32_t)(*s - '0') * unit;
	}
	*ret = v;
	return true;
}

int num_parse_milli(
    const char *s, uint32_t min, uint32_t max, uint32_t *ret, struct err *e)
{
	size_t whole_len = strcspn(s, ".");
	uint64_t whole;
	uint32_t part = 0;
	bool ok;

	ok = parse_digits(s, whole_len, &whole) &&
	     whole <= UINT32_MAX / 1000 - 1;
	if (ok && s[whole_len] == '.')
		ok = parse_decimals(s + whole_len + 1, &part);
	if (ok)
		part += (uint32_t)whole * 1000;
	if (!ok || part < min || part > max)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "must be a number from %u.%u to %u.%u with at most three "
		    "decimals",
		    min / 1000, min % 1000 / 100, max / 1000, max % 1000 / 100);
	*ret = part;
	return 0;
}

int64_t num_digits(const char *s, size_t len)
{
	int64_t n = 0;

	if (len == 0)
		return -1;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9' || n > INT64_MAX / 10 - 10)
			return -1;
		n = n * 10 + (s[i] - '0');
	}
	return n;
}
