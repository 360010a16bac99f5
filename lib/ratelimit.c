/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/ratelimit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "lib/ratelimit_file.h"

#define NS_PER_S 1000000000ull
#define NS_PER_MIN (60 * NS_PER_S)

/* More would not fit 64 bits of nanoseconds for long. */
#define BURST_MAX 1000000u

/*
 * A lock is held for some ten instructions. Should its holder have been stopped
 * in there, others do not wait for ever: they answer "in a second".
 */
#define LOCK_WAIT_S 1

struct ratelimit {
	struct rate_file *file;
};

int ratelimit_open(const char *path, struct ratelimit **ret, struct err *e)
{
	struct ratelimit *r;
	int err;

	if (sodium_init() < 0)
		return err_set(
		    e, ERR_INTERNAL, ENOSYS, "libsodium does not start");
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return err_sys(e, ENOMEM, "%.100s", path);
	err = rate_file_map(path, &r->file, e);
	if (err < 0) {
		free(r);
		return err;
	}
	*ret = r;
	return 0;
}

void ratelimit_close(struct ratelimit *r)
{
	if (r == NULL)
		return;
	(void)munmap(r->file, sizeof(*r->file));
	free(r);
}

static uint64_t hash(const struct ratelimit *r, const void *data, size_t len)
{
	uint64_t h = 0;

	_Static_assert(crypto_shorthash_BYTES == sizeof(h), "a hash is a u64");
	(void)crypto_shorthash(
	    (unsigned char *)&h, data, len, r->file->hash_key);
	return h;
}

/* The address as bytes after its kind; 0 when the text is none. */
static size_t address_bytes(const char *text, uint8_t ret[9])
{
	char plain[INET6_ADDRSTRLEN];
	struct in6_addr a6;
	struct in_addr a4;
	size_t len = strcspn(text, "%"); /* "fe80::1%eth0": no zone */

	if (inet_pton(AF_INET, text, &a4) == 1) {
		ret[0] = 4;
		memcpy(ret + 1, &a4, 4);
		return 5;
	}
	if (len >= sizeof(plain))
		return 0;
	memcpy(plain, text, len);
	plain[len] = '\0';
	if (inet_pton(AF_INET6, plain, &a6) != 1)
		return 0;
	if (IN6_IS_ADDR_V4MAPPED(&a6)) {
		ret[0] = 4;
		memcpy(ret + 1, a6.s6_addr + 12, 4);
		return 5;
	}
	ret[0] = 6;
	memcpy(ret + 1, a6.s6_addr, 8);
	return 9;
}

uint64_t ratelimit_key(const struct ratelimit *r, const char *remote_addr)
{
	uint8_t bytes[9];
	size_t len = address_bytes(remote_addr, bytes);

	if (len > 0)
		return hash(r, bytes, len);
	return hash(r, remote_addr, strlen(remote_addr));
}

/*
 * The bucket of tag, or the one that makes room for it: an empty or a full one
 * (which is the same), else the one that will be full first.
 */
static struct rate_bucket *find_bucket(struct rate_bucket *set, uint64_t tag)
{
	struct rate_bucket *stalest = &set[0];

	for (size_t i = 0; i < RATE_WAYS; i++) {
		if (set[i].tag == tag)
			return &set[i];
		if (set[i].full_ns < stalest->full_ns)
			stalest = &set[i];
	}
	/* In this order: killed between any two, the bucket is a full one. */
	stalest->full_ns = 0;
	stalest->tag = tag;
	return stalest;
}

/*
 * A bucket is kept as the time at which it will be full again. A token is worth
 * `step`; there is one when no more than burst - 1 of them are lacking. Later
 * times than an empty bucket's come from another clock, or from a larger burst
 * before: the bucket is empty then. Returns the nanoseconds to wait.
 */
static uint64_t take_token(
    struct rate_bucket *b, uint64_t step, unsigned burst, uint64_t now_ns)
{
	uint64_t full_ns = b->full_ns;

	if (full_ns < now_ns)
		full_ns = now_ns;
	if (full_ns > now_ns + step * burst)
		full_ns = now_ns + step * burst;
	if (full_ns > now_ns + step * (burst - 1)) {
		b->full_ns = full_ns;
		return full_ns - now_ns - step * (burst - 1);
	}
	b->full_ns = full_ns + step;
	return 0;
}

static bool lock(pthread_mutex_t *m)
{
	struct timespec until;
	int r;

	r = pthread_mutex_trylock(m);
	if (r == EBUSY) {
		(void)clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += LOCK_WAIT_S;
		r = pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &until);
	}
	/* Its holder died; what it left of the buckets is good at any point. */
	if (r == EOWNERDEAD)
		r = pthread_mutex_consistent(m);
	return r == 0;
}

unsigned ratelimit_take_at(struct ratelimit *r, unsigned class, uint64_t key,
    unsigned per_min, unsigned burst, uint64_t now_ns)
{
	const uint64_t whose[2] = {key, class};
	uint64_t tag = hash(r, whose, sizeof(whose));
	uint64_t set = tag % RATE_SETS;
	pthread_mutex_t *m = &r->file->locks[set % RATE_LOCKS].mutex;
	uint64_t step;
	uint64_t wait;

	if (per_min == 0)
		return 0;
	if (tag == 0)
		tag = RATE_SETS; /* of the same set; 0 is empty */
	if (burst == 0 || burst > BURST_MAX)
		burst = burst == 0 ? 1 : BURST_MAX;
	step = (NS_PER_MIN + per_min - 1) / per_min;
	if (!lock(m))
		return LOCK_WAIT_S;
	wait = take_token(
	    find_bucket(r->file->buckets[set], tag), step, burst, now_ns);
	(void)pthread_mutex_unlock(m);
	return (unsigned)((wait + NS_PER_S - 1) / NS_PER_S);
}

unsigned ratelimit_take(struct ratelimit *r, unsigned class, uint64_t key,
    unsigned per_min, unsigned burst)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return ratelimit_take_at(r, class, key, per_min, burst,
	    (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec);
}
