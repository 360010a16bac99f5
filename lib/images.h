/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_IMAGES_H
#define ISOBOX_IMAGES_H

#include "lib/err.h"

/*
 * The directory of root file systems, as isobox-image lays it out:
 *
 *	images.lock	"<sha256 hex>  NAME" lines, # comments
 *	NAME/		the root file system
 *	NAME.digest	the hex digest of the tar that NAME/ was made from
 */
struct images;

/* A directory or an images.lock that is absent is no error: images_check() says
 * so for each image. A bad line in images.lock is one. */
int images_open(const char *dir, struct images **ret, struct err *e);
void images_close(struct images *im);

/* Whether the image is there with the digest of its line; else *e says what
 * lacks or differs. */
int images_check(const struct images *im, const char *name, struct err *e);

#endif
