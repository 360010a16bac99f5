/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_TOKEN_H
#define ISOBOX_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

#define TOKEN_HASH_LEN 32u /* BLAKE2b-256 */
#define TOKEN_ID_LEN 22u /* 128 random bits in base64url */

/* Once in each process before any other call here (libsodium). */
int token_init(struct err *e);

/* n random bytes of the system's generator. */
void token_random(void *ret, size_t n);

/* A fresh identifier of TOKEN_ID_LEN characters and a NUL. */
void token_new_id(char ret[TOKEN_ID_LEN + 1]);

/* The hash under which a key or token is stored and compared. */
void token_hash(const char *token, size_t len, uint8_t ret[TOKEN_HASH_LEN]);

/* Constant time. */
bool token_hash_equal(
    const uint8_t a[TOKEN_HASH_LEN], const uint8_t b[TOKEN_HASH_LEN]);

#endif
