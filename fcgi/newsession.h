/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_NEWSESSION_H
#define ISOBOX_FCGI_NEWSESSION_H

#include <sodium.h>

#include "lib/err.h"
#include "lib/json.h"
#include "lib/kernelproto.h"
#include "lib/store.h"

struct exchange;

/* 256 random bits in base64url, and a NUL. */
#define SESSION_TOKEN_BYTES 32u
#define SESSION_TOKEN_SIZE         \
	sodium_base64_ENCODED_LEN( \
	    SESSION_TOKEN_BYTES, sodium_base64_VARIANT_URLSAFE_NO_PADDING)

/* A session that is being made: by POST /v1/sessions, or as a fork. */
struct newsession {
	struct store_session record; /* type, runtime, ttl... are the maker's */
	char token[SESSION_TOKEN_SIZE];
	struct kernel_info kernel; /* of a kernel session, once it is there */
};

/* The member ttlSec, moved into its bounds; unless it is there: the longest,
 * or what record.ttl_sec has already. The type is known. */
int newsession_take_ttl(struct exchange *x, struct json_object *root,
    struct newsession *n, struct err *e);

/*
 * Names it and writes it down, and only then has `make` do the runner's part
 * (a workspace without a record is garbage to the sweep). What fails leaves
 * nothing behind.
 */
typedef int newsession_make(
    struct exchange *x, struct newsession *n, void *arg, struct err *e);
int newsession_begin(struct exchange *x, struct newsession *n,
    newsession_make *make, void *arg, struct err *e);

/* Answers 201, the token included, and forgets that. */
void newsession_answer(struct exchange *x, struct newsession *n);

#endif
