/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_GUARD_H
#define ISOBOX_FCGI_GUARD_H

#include "lib/err.h"

struct exchange;

/*
 * What stands before a handler: keys and rates. The headers were read with the
 * request; nothing of a body is looked at before these have passed.
 */

/* Sets x->tenant. ERR_UNAUTHORIZED when keys are set and this is none. */
int guard_key(struct exchange *x, struct err *e);

/* The same for memory and volumes: with memory_require_key there is no open mode
 * for them. */
int guard_memory_key(struct exchange *x, struct err *e);

/* Each class has buckets of its own, the numbers are in the file: never change
 * one. */
enum rate_class {
	RATE_RUN = 0, /* programs: one-shot runs and steps */
	RATE_CREATE = 1, /* sessions and volumes: as many as runs */
	RATE_FILE = 2 /* calls of the file API: RATE_FILE_FACTOR as many */
};

/* A program is worth so many files; a folder is uploaded file by file. */
#define RATE_FILE_FACTOR 20u

/* ERR_RATE_LIMITED; then x->retry_after_s says when to come again. */
int guard_rate(struct exchange *x, enum rate_class class, struct err *e);

#endif
