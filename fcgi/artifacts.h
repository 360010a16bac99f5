/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_ARTIFACTS_H
#define ISOBOX_FCGI_ARTIFACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/limits.h"

/*
 * The artifacts of a kernel's step, as they come from the runner: made into JSON
 * one by one, so that each is held in one form only. Zero-initialise it.
 */
struct artifacts {
	struct buf json; /* whole ones: {"type":...},{"type":...} */
	struct buf data; /* of the one that comes */
	char type[LIMIT_MIME_TYPE + 1]; /* likewise the members below */
	bool text;
	size_t left; /* bytes that are to come */
	bool open;
	unsigned count; /* that were begun */
	bool dropped; /* not all that were begun are in json */
};

void artifacts_done(struct artifacts *a); /* frees */

/* A PROTO_ARTIFACT, and the PROTO_ARTIFACT_DATA that follow it. Negative when
 * they are not as they have to be, or memory is out. */
int artifacts_begin(
    struct artifacts *a, const uint8_t *payload, size_t len, struct err *e);
int artifacts_data(
    struct artifacts *a, const uint8_t *data, size_t len, struct err *e);

/* No more comes: one that is not whole is dropped. */
void artifacts_end(struct artifacts *a);

/* Leaves them all out. */
void artifacts_drop(struct artifacts *a);

#endif
