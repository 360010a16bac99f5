/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_AUTH_H
#define ISOBOX_FCGI_AUTH_H

#include <stddef.h>
#include <stdint.h>

#include "fcgi/request.h"
#include "fcgi/shared.h"
#include "lib/config.h"
#include "lib/err.h"
#include "lib/token.h"

/* The keys in force: hashes only. */
struct keyring {
	struct shared shared;
	size_t count; /* 0: open mode */
	uint8_t hashes[][TOKEN_HASH_LEN];
};

/* A copy of the configuration's keys. */
int keyring_new(
    const struct config *config, struct keyring **ret, struct err *e);

/* Whose request it is: "public", or the hash of the key in hexadecimal. */
#define TENANT_PUBLIC "public"
struct tenant {
	char name[2 * TOKEN_HASH_LEN + 1];
};

/*
 * Whether the request may use what needs a key: X-API-Key, or else
 * Authorization: Bearer. In open mode nothing is looked at. A header that came
 * more than once is refused, whichever of them is right: the front server and we
 * might each mean another. ERR_UNAUTHORIZED without a message.
 */
int auth_check(const struct keyring *keys, const struct request *q,
    struct tenant *ret, struct err *e);

#endif
