/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_RATELIMIT_FILE_H
#define ISOBOX_RATELIMIT_FILE_H

#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdint.h>

#include "lib/err.h"

/*
 * The file behind ratelimit.h, for ratelimit*.c and their test: a header, then
 * the locks, then the buckets in sets. A bucket lives in one set, which the low
 * bits of its tag name; a lock guards each set whose number ends in its own.
 */
#define RATE_SETS 2048u
#define RATE_WAYS 8u /* buckets of a set: 16,384 in all */
#define RATE_LOCKS 64u
#define RATE_MAGIC 0x31746d6c786f7369ull /* "isoxlmt1" */
#define RATE_BOOT_LEN 36u /* a UUID, random(4) */

struct rate_bucket {
	_Atomic uint64_t tag; /* keyed hash of client and class; 0 = empty */
	_Atomic uint64_t full_ns; /* when it will be full again */
};

struct rate_lock {
	_Alignas(64) pthread_mutex_t mutex; /* own cache line */
};

struct rate_file {
	uint64_t magic;
	uint64_t size;
	char boot_id[RATE_BOOT_LEN];
	uint8_t hash_key[crypto_shorthash_KEYBYTES];
	struct rate_lock locks[RATE_LOCKS];
	struct rate_bucket buckets[RATE_SETS][RATE_WAYS];
};

/* Maps the file at path, made anew where needed. Unmapped by the caller. */
int rate_file_map(const char *path, struct rate_file **ret, struct err *e);

#endif
