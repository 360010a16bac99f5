/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_PATH_H
#define ISOBOX_PATH_H

#include <stddef.h>

#include "lib/buf.h"
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

/*
 * Folds a path of the file API inside its workspace: "." and empty components go,
 * ".." takes the one before it away and stays at the root, a leading "/" means the
 * root. Appends the rest, relative, to out: nothing for the root itself. Symbolic
 * links are not looked at. Fails with ERR_INVALID_PATH for NUL, a component that is
 * too long, or more than LIMIT_WS_PATH bytes.
 */
int path_fold(const char *path, size_t len, struct buf *out, struct err *e);

#endif
