/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/strings.h"

#include <stdlib.h>
#include <string.h>

void strings_free(char **s)
{
	for (char **p = s; p != NULL && *p != NULL; p++)
		free(*p);
	free(s);
}

char **strings_new(const struct blob *b, size_t n)
{
	char **s = calloc(n + 1, sizeof(*s));

	for (size_t i = 0; s != NULL && i < n; i++) {
		s[i] = strndup((const char *)b[i].data, b[i].len);
		if (s[i] == NULL) {
			strings_free(s);
			return NULL;
		}
	}
	return s;
}

bool blob_equal(const struct blob *a, const struct blob *b)
{
	return a->len == b->len &&
	       (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}
