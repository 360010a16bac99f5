/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "lib/store_db.h"

#define ETAG_HASH_LEN 16u /* 128 bits, TOKEN_ID_LEN in base64url */

/* A row of STMT_MEMORY_GET. */
static void take_meta(sqlite3_stmt *st, struct store_meta *ret)
{
	memset(ret, 0, sizeof(*ret));
	store_text(st, 1, ret->etag, sizeof(ret->etag));
	store_text(st, 2, ret->type, sizeof(ret->type));
	ret->size = (uint64_t)sqlite3_column_int64(st, 3);
	ret->modified_ms = sqlite3_column_int64(st, 4);
	ret->expires_ms = sqlite3_column_int64(st, 5);
}

static sqlite3_stmt *find(
    struct store_tx *t, const struct store_key *k, int64_t now, struct err *e)
{
	return store_bind(t, STMT_MEMORY_GET, e, "ttbi", k->tenant, k->space,
	    (const void *)k->key, k->key_len, now);
}

/* What stands there now: whether anything does. */
static int look(struct store_tx *t, const struct store_key *k, int64_t now,
    struct store_meta *ret, struct err *e)
{
	sqlite3_stmt *st = find(t, k, now, e);
	int r;

	if (st == NULL)
		return -e->code;
	r = store_step(t, st, e);
	if (r > 0)
		take_meta(st, ret);
	store_done(st);
	return r;
}

/* What a tenant has, expired values included. */
static int get_usage(struct store_tx *t, const char *tenant,
    struct store_limits *ret, struct err *e)
{
	sqlite3_stmt *st = store_bind(t, STMT_MEMORY_USAGE_OF, e, "t", tenant);
	int r;

	*ret = (struct store_limits){0};
	if (st == NULL)
		return -e->code;
	r = store_step(t, st, e);
	if (r > 0) {
		ret->keys = (uint64_t)sqlite3_column_int64(st, 0);
		ret->bytes = (uint64_t)sqlite3_column_int64(st, 1);
	}
	store_done(st);
	return r < 0 ? r : 0;
}

/* A change of one value. */
struct change {
	const struct store_key *key;
	const struct store_meta *old; /* NULL: there is none */
	int64_t now;
};

/* Whether the tenant has room for size bytes in the place of the old value. */
static int measure(struct store_tx *t, const struct change *c, uint64_t size,
    const struct store_limits *limits, struct err *e)
{
	struct store_limits used;
	int r = get_usage(t, c->key->tenant, &used, e);

	if (r < 0)
		return r;
	if (c->old != NULL) {
		used.keys--;
		used.bytes -= c->old->size;
	}
	if (used.keys >= limits->keys)
		return err_set(e, ERR_QUOTA_EXCEEDED, EDQUOT,
		    "at most %" PRIu64 " keys are allowed", limits->keys);
	if (size > limits->bytes || used.bytes > limits->bytes - size)
		return err_set(e, ERR_QUOTA_EXCEEDED, EDQUOT,
		    "at most %" PRIu64 " bytes are allowed, and %" PRIu64
		    " are in use",
		    limits->bytes, used.bytes);
	return 0;
}

/* Expired values take room until they are swept: when there is none, they are
 * swept first. */
static int make_room(struct store_tx *t, const struct change *c, uint64_t size,
    const struct store_limits *limits, struct err *e)
{
	int r = measure(t, c, size, limits, e);
	int swept;

	if (r == 0 || e->kind != ERR_QUOTA_EXCEEDED)
		return r;
	swept = store_run(
	    t, STMT_MEMORY_SWEEP, e, "iti", c->now, c->key->tenant, INT64_MAX);
	if (swept == 0)
		return r;
	return swept < 0 ? swept : measure(t, c, size, limits, e);
}

/* Looks at what is there, and asks whether it may be changed. */
static int begin_change(struct store_tx *t, struct change *c,
    struct store_meta *old, store_check *check, void *arg, struct err *e)
{
	int r = look(t, c->key, c->now, old, e);

	if (r < 0)
		return r;
	c->old = r > 0 ? old : NULL;
	return check == NULL ? 0 : check(arg, c->old, e);
}

/* Type and bytes make the tag: the same again has the same. */
static void set_etag(struct store_meta *m, const void *value)
{
	crypto_generichash_state h;
	uint8_t hash[ETAG_HASH_LEN];

	(void)crypto_generichash_init(&h, NULL, 0, sizeof(hash));
	(void)crypto_generichash_update(
	    &h, (const uint8_t *)m->type, strlen(m->type) + 1);
	if (m->size > 0)
		(void)crypto_generichash_update(&h, value, m->size);
	(void)crypto_generichash_final(&h, hash, sizeof(hash));
	(void)sodium_bin2base64(m->etag, sizeof(m->etag), hash, sizeof(hash),
	    sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

int store_memory_put(struct store *s, const struct store_key *k,
    const void *value, struct store_meta *m, const struct store_limits *limits,
    store_check *check, void *arg, struct err *e)
{
	struct change c = {.key = k};
	struct store_meta old = {0};
	struct store_tx t;
	int r;

	set_etag(m, value);
	r = store_write(s, false, &t, e);
	if (r < 0)
		return r;
	c.now = m->modified_ms = store_now_ms();
	if ((r = begin_change(&t, &c, &old, check, arg, e)) == 0 &&
	    (r = make_room(&t, &c, m->size, limits, e)) == 0)
		r = store_run(&t, STMT_MEMORY_PUT, e, "ttbttiiib", k->tenant,
		    k->space, (const void *)k->key, k->key_len, m->etag,
		    m->type, (int64_t)m->size, m->modified_ms, m->expires_ms,
		    value, (size_t)m->size);
	r = store_end(&t, r, e);
	return r < 0 ? r : 0;
}

int store_memory_delete(struct store *s, const struct store_key *k,
    store_check *check, void *arg, struct err *e)
{
	struct change c = {.key = k, .now = store_now_ms()};
	struct store_meta old = {0};
	struct store_tx t;
	int r = store_write(s, false, &t, e);

	if (r < 0)
		return r;
	r = begin_change(&t, &c, &old, check, arg, e);
	if (r == 0)
		r = store_run(&t, STMT_MEMORY_DELETE, e, "ttb", k->tenant,
		    k->space, (const void *)k->key, k->key_len);
	r = store_end(&t, r, e);
	return r < 0 ? r : 0;
}

/* Reads a value straight into memory of ours. The statement that found it is
 * still at its row: both see the same moment. */
static int read_value(
    struct store_tx *t, int64_t id, uint64_t size, uint8_t **ret, struct err *e)
{
	uint8_t *data = malloc(size > 0 ? size : 1);
	sqlite3_blob *blob = NULL;
	int rc;

	if (data == NULL)
		return err_sys(e, ENOMEM, "a value");
	rc = sqlite3_blob_open(
	    t->conn->db, "main", "memory", "value", id, 0, &blob);
	if (rc == SQLITE_OK)
		rc = sqlite3_blob_read(blob, data, (int)size, 0);
	(void)sqlite3_blob_close(blob);
	if (rc != SQLITE_OK) {
		free(data);
		return store_conn_fail(t->conn, rc, e);
	}
	*ret = data;
	return 0;
}

static int get(struct store_tx *t, const struct store_key *k,
    struct store_meta *ret, store_wants *wants, void *arg, uint8_t **ret_value,
    struct err *e)
{
	sqlite3_stmt *st = find(t, k, store_now_ms(), e);
	int r;

	if (st == NULL)
		return -e->code;
	r = store_step(t, st, e);
	if (r == 0)
		r = err_set(e, ERR_NOT_FOUND, ENOENT, "%s", "");
	if (r > 0) {
		take_meta(st, ret);
		if (ret_value != NULL && wants != NULL && wants(arg, ret))
			r = read_value(t, sqlite3_column_int64(st, 0),
			    ret->size, ret_value, e);
	}
	store_done(st);
	return r < 0 ? r : 0;
}

int store_memory_get(struct store *s, const struct store_key *k,
    struct store_meta *ret, store_wants *wants, void *arg, uint8_t **ret_value,
    struct err *e)
{
	struct store_tx t;
	int r = store_read(s, &t, e);

	if (ret_value != NULL)
		*ret_value = NULL;
	if (r < 0)
		return r;
	return store_end(&t, get(&t, k, ret, wants, arg, ret_value, e), e);
}

/* The first key behind `after`, and what begins with a prefix: a range from
 * `from` to below `to`. A key and a NUL is the next one in the order of bytes. */
struct bounds {
	uint8_t from[LIMIT_KEY + 1];
	size_t from_len;
	uint8_t to[LIMIT_KEY + 1];
	size_t to_len;
};

static int compare(
    const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
	size_t n = a_len < b_len ? a_len : b_len;
	int r = n > 0 ? memcmp(a, b, n) : 0;

	if (r != 0)
		return r;
	return a_len < b_len ? -1 : a_len > b_len;
}

static void set_bounds(struct bounds *b, const struct store_range *range)
{
	size_t n = range->prefix_len;

	b->from_len = n;
	if (n > 0)
		memcpy(b->from, range->prefix, n);
	if (range->after_len > 0 && compare(range->after, range->after_len,
					b->from, b->from_len) >= 0) {
		memcpy(b->from, range->after, range->after_len);
		b->from[range->after_len] = 0;
		b->from_len = range->after_len + 1;
	}
	/* Behind all that begins with it: its last byte that can grow, grown;
	 * without one, more 0xff than any key has. */
	memset(b->to, 0xff, sizeof(b->to));
	b->to_len = sizeof(b->to);
	while (n > 0 && range->prefix[n - 1] == 0xff)
		n--;
	if (n > 0) {
		memcpy(b->to, range->prefix, n);
		b->to[n - 1]++;
		b->to_len = n;
	}
}

static int list(struct store_tx *t, const struct store_range *range,
    store_key_each *each, void *arg, struct err *e)
{
	struct bounds b;
	sqlite3_stmt *st;
	int r;

	set_bounds(&b, range);
	st = store_bind(t, STMT_MEMORY_LIST, e, "ttbbii", range->tenant,
	    range->space, (const void *)b.from, b.from_len, (const void *)b.to,
	    b.to_len, store_now_ms(), (int64_t)range->limit);
	if (st == NULL)
		return -e->code;
	while ((r = store_step(t, st, e)) > 0) {
		const void *key = sqlite3_column_blob(st, 0);

		if (key == NULL)
			continue;
		r = each(arg, key, (size_t)sqlite3_column_bytes(st, 0), e);
		if (r < 0)
			break;
	}
	store_done(st);
	return r;
}

int store_memory_list(struct store *s, const struct store_range *range,
    store_key_each *each, void *arg, struct err *e)
{
	struct store_tx t;
	int r;

	if (range->prefix_len > LIMIT_KEY || range->after_len > LIMIT_KEY)
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "a key has at most %u bytes", LIMIT_KEY);
	r = store_read(s, &t, e);
	return r < 0 ? r : store_end(&t, list(&t, range, each, arg, e), e);
}

int store_memory_sweep(struct store *s, unsigned max, struct err *e)
{
	int64_t now = store_now_ms();
	int r = store_ask_alone(s, STMT_MEMORY_EXPIRED, NULL, e, "i", now);

	if (r <= 0)
		return r;
	return store_run_alone(s, STMT_MEMORY_SWEEP, e, "iti", now,
	    (const char *)NULL, (int64_t)max);
}

static int sum(
    struct store_tx *t, uint64_t *ret_keys, uint64_t *ret_bytes, struct err *e)
{
	sqlite3_stmt *st = store_bind(t, STMT_MEMORY_USAGE, e, "");
	int r;

	if (st == NULL)
		return -e->code;
	r = store_step(t, st, e);
	if (r > 0) {
		*ret_keys = (uint64_t)sqlite3_column_int64(st, 0);
		*ret_bytes = (uint64_t)sqlite3_column_int64(st, 1);
	}
	store_done(st);
	return r < 0 ? r : 0;
}

int store_memory_usage(
    struct store *s, uint64_t *ret_keys, uint64_t *ret_bytes, struct err *e)
{
	struct store_tx t;
	int r = store_read(s, &t, e);

	return r < 0 ? r : store_end(&t, sum(&t, ret_keys, ret_bytes, e), e);
}
