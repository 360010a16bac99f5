/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_FOLDER_H
#define ISOBOX_FCGI_FOLDER_H

#include <stddef.h>

#include "fcgi/wsclient.h"
#include "lib/buf.h"
#include "lib/err.h"

struct exchange;

/*
 * Answers that a folder is made into, while the runner reads it: c has been asked
 * and is the caller's to close. An error that comes before the answer has begun
 * is returned; later ones break it off, so that no client takes half of it for
 * the whole.
 */

/* {"path","dir":true,"entries":[...]}; c is behind INFO. */
int folder_list(struct exchange *x, struct ws_client *c, const struct buf *path,
    struct err *e);

/* A zip archive called name.zip; c is before INFO. */
int folder_zip(struct exchange *x, struct ws_client *c, const char *name,
    size_t name_len, struct err *e);

#endif
