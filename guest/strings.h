/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_STRINGS_H
#define ISOBOX_GUEST_STRINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/job.h"

/* The NULL-terminated strings that execve(2) wants, the caller's to free; NULL
 * when memory is out. A decoder has seen to it that there is no NUL in them. */
char **strings_new(const struct blob *b, size_t n);
void strings_free(char **s);

static inline void strings_freep(char ***s)
{
	strings_free(*s);
}
#define cleanup_strings __attribute__((cleanup(strings_freep)))

bool blob_equal(const struct blob *a, const struct blob *b);

#endif
