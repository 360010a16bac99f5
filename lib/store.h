/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_STORE_H
#define ISOBOX_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/limits.h"
#include "lib/token.h"

/*
 * What isobox.fcgi must not forget: sessions, volumes, memory. One SQLite file
 * in the state directory, shared by all processes of the web side. What is
 * acknowledged is on the disk, but for store_session_touch().
 *
 * A record belongs to a tenant (auth.h), and whoever asks names his own: another
 * tenant's record is not there, in every respect. Times are milliseconds since
 * 1970. Any thread may call any function.
 *
 * Common errors: ERR_STORAGE_FULL when the disk is full, ERR_STORAGE_FAILED when
 * the file is damaged, locked for too long (code EBUSY: try again), written by a
 * newer version, or cannot be reached. Nothing has changed then.
 */
struct store;

#define STORE_TENANT_LEN (2 * TOKEN_HASH_LEN) /* longest: a hash in hex */

/* dir: the state directory. Touches no file yet; the first use opens the store
 * and makes it when there is none. *ret is store_free()'s. */
int store_new(const char *dir, struct store **ret, struct err *e);

/* Opens it now, so that what is wrong is told at the start of a service. */
int store_open(struct store *s, struct err *e);
void store_free(struct store *s); /* NULL is fine */

/* Now, as the records have it. */
int64_t store_now_ms(void);

/* ---- Sessions */

enum store_session_type {
	STORE_SESSION_FILESYSTEM,
	STORE_SESSION_KERNEL
};

struct store_session {
	char id[TOKEN_ID_LEN + 1];
	char tenant[STORE_TENANT_LEN + 1];
	uint8_t token_hash[TOKEN_HASH_LEN]; /* token_hash() of the token */
	enum store_session_type type;
	char runtime[LIMIT_ID + 1]; /* name in the registry */
	char version[LIMIT_ID + 1];
	bool network; /* of a kernel, for its life */
	char volume[TOKEN_ID_LEN + 1]; /* held at /memory; "" none */
	uint32_t ttl_sec; /* idle */
	int64_t created_ms;
	int64_t used_ms; /* last step, file call or stream */
	int64_t expires_ms; /* used_ms and the ttl */
};

/*
 * Puts the whole record in, times included (expires_ms is set from used_ms and
 * ttl_sec). ERR_TOO_MANY_SESSIONS when there are max->all already, or the tenant
 * has max->of_tenant, those that have expired and those being removed included
 * until they are gone;
 * ERR_VOLUME_NOT_FOUND when its tenant has no such volume, ERR_VOLUME_BUSY when
 * another session holds it. From here on the session holds the volume.
 */
struct store_session_max {
	uint32_t all;
	uint32_t of_tenant;
};
int store_session_create(struct store *s, const struct store_session *new,
    const struct store_session_max *max, struct err *e);

/* The live session of that tenant: not one that has expired or is being
 * removed. ERR_SESSION_NOT_FOUND. */
int store_session_get(struct store *s, const char *tenant, const char *id,
    struct store_session *ret, struct err *e);

/*
 * It was used now: moves used_ms and expires_ms. Cheap: no fsync (a power failure
 * may forget it), and nothing at all when it was called a moment ago (a fiftieth
 * of the ttl, at most 5 s). ERR_SESSION_NOT_FOUND when it is no more.
 */
int store_session_touch(struct store *s, const char *id, struct err *e);

/*
 * How a session ends, so that a kill between any two steps loses nothing:
 * 1. store_session_end(): no request finds it any more; its volume stays held;
 * 2. the runner ends its step and removes its workspace;
 * 3. store_session_delete(): the record goes, and the volume is free.
 * What hangs in between, store_sessions_ending() tells again and again.
 */
int store_session_end(
    struct store *s, const char *tenant, const char *id, struct err *e);
int store_session_delete(struct store *s, const char *id, struct err *e);

/* An identifier of a record, as a list of them has it. */
struct store_id {
	char id[TOKEN_ID_LEN + 1];
};

/* Ends the sessions that have expired (step 1, all at once) and lists up to max
 * that wait for steps 2 and 3, longest waiting first. The number of them. Writes
 * nothing when there is nothing to end. */
int store_sessions_ending(
    struct store *s, struct store_id *ret, size_t max, struct err *e);

/* How many there are, of all tenants or (tenant not NULL) of one. */
int store_session_count(
    struct store *s, const char *tenant, uint64_t *ret, struct err *e);

/* For reconciliation: 1 when there is a record (live or ending) of that id, 0
 * when a workspace of that name is garbage. */
int store_session_known(struct store *s, const char *id, struct err *e);

/* ---- Volumes */

struct store_volume {
	char id[TOKEN_ID_LEN + 1];
	char tenant[STORE_TENANT_LEN + 1];
	char name[LIMIT_VOLUME_NAME + 1]; /* UTF-8, need not be unique */
	int64_t created_ms;
	char holder[TOKEN_ID_LEN + 1]; /* session, "" free; not put in */
};

/* ERR_TOO_MANY_VOLUMES when the tenant has `max` already, those being removed
 * included. */
int store_volume_create(struct store *s, const struct store_volume *new,
    uint32_t max, struct err *e);

/* ERR_VOLUME_NOT_FOUND. */
int store_volume_get(struct store *s, const char *tenant, const char *id,
    struct store_volume *ret, struct err *e);

/* All of a tenant, oldest first, to each; a negative answer of each ends it and
 * is returned. */
typedef int store_volume_each(
    void *arg, const struct store_volume *v, struct err *e);
int store_volume_list(struct store *s, const char *tenant,
    store_volume_each *each, void *arg, struct err *e);

/* As sessions end: end, remove the directory, delete. ERR_VOLUME_BUSY when a
 * session holds it, ERR_VOLUME_NOT_FOUND. */
int store_volume_end(
    struct store *s, const char *tenant, const char *id, struct err *e);
int store_volume_delete(struct store *s, const char *id, struct err *e);
int store_volumes_ending(
    struct store *s, struct store_id *ret, size_t max, struct err *e);

int store_volume_count(
    struct store *s, const char *tenant, uint64_t *ret, struct err *e);
int store_volume_known(struct store *s, const char *id, struct err *e);

/* ---- Memory */

/* Where a value is. Namespace and key are checked by whoever calls. */
struct store_key {
	const char *tenant;
	const char *space; /* the namespace */
	const uint8_t *key;
	size_t key_len;
};

/* What is known of a value besides its bytes. */
struct store_meta {
	char etag[TOKEN_ID_LEN + 1]; /* a hash of type and bytes */
	char type[LIMIT_CONTENT_TYPE + 1]; /* "" none was given */
	uint64_t size;
	int64_t modified_ms;
	int64_t expires_ms; /* 0 never */
};

/* Asked in the middle of a change, which it alone can stop: `now` is what
 * stands there, NULL nothing. Negative stops, with *e. */
typedef int store_check(void *arg, const struct store_meta *now, struct err *e);

struct store_limits {
	uint64_t bytes; /* of all values of a tenant */
	uint64_t keys;
};

/* Puts a value in the place of what is there. m->etag, size and modified_ms are
 * set here. ERR_QUOTA_EXCEEDED. check may be NULL. */
int store_memory_put(struct store *s, const struct store_key *k,
    const void *value, struct store_meta *m, const struct store_limits *limits,
    store_check *check, void *arg, struct err *e);

/*
 * What is there: ERR_NOT_FOUND, also when it has expired. wants(arg, m) says
 * whether its bytes are asked for, too: then *ret_value (m->size bytes, the
 * caller's to free) is set, else NULL. wants NULL: never.
 */
typedef bool store_wants(void *arg, const struct store_meta *m);
int store_memory_get(struct store *s, const struct store_key *k,
    struct store_meta *ret, store_wants *wants, void *arg, uint8_t **ret_value,
    struct err *e);

/* Gone afterwards, whether it was there or not. */
int store_memory_delete(struct store *s, const struct store_key *k,
    store_check *check, void *arg, struct err *e);

/* Up to limit keys of a namespace that begin with prefix and come behind `after`
 * (after_len 0: from the first), in the order of their bytes. */
struct store_range {
	const char *tenant;
	const char *space;
	const uint8_t *prefix;
	size_t prefix_len;
	const uint8_t *after;
	size_t after_len;
	unsigned limit;
};
typedef int store_key_each(
    void *arg, const uint8_t *key, size_t len, struct err *e);
int store_memory_list(struct store *s, const struct store_range *range,
    store_key_each *each, void *arg, struct err *e);

/* Removes up to `max` expired values of all tenants; how many there were. */
int store_memory_sweep(struct store *s, unsigned max, struct err *e);

/* Of all tenants; expired ones count until they are swept. */
int store_memory_usage(
    struct store *s, uint64_t *ret_keys, uint64_t *ret_bytes, struct err *e);

#endif
