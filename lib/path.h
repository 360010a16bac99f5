/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_PATH_H
#define ISOBOX_PATH_H

#include <stddef.h>

#include "lib/err.h"

/*
 * Checks the name of a file of a request: relative, components of 1 to
 * LIMIT_NAME_COMPONENT bytes joined by single slashes, none of them "." or "..",
 * no NUL, LIMIT_NAME bytes in all. Fails with ERR_INVALID_FILE and what is
 * wrong, without the name itself.
 */
int path_check_name(const char *name, size_t len, struct err *e);

/*
 * Checks that n checked names can live in one tree: none twice, none that is a
 * folder of another. On failure *ret_index is the later of the two.
 */
int path_check_set(
    const char *const *names, size_t n, size_t *ret_index, struct err *e);

#endif
