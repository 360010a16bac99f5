/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_writer DIR NAME FIRST: changes the store in DIR without an end, as the
 * tenant NAME, and writes "N\n" when change N is acknowledged. What change N is
 * follows from N alone (test_store.py has the same rules), so that whoever kills
 * this program can tell what must be there:
 *	N % 7 == 0	the key N % 50 is deleted
 *	N % 7 != 0	it gets a value of N * 37 % 5000 bytes that begins with N
 *	N % 5 == 0	and a session is made, which change N + 3 removes
 * Where two rules meet they are two transactions, the session's first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/store.h"

#define KEYS 50
#define VALUE_MAX 5000

static const struct store_limits no_limits = {1u << 30, 1000000};

static void check(int r, const struct err *e)
{
	if (r >= 0)
		return;
	(void)fprintf(stderr, "%s: %s\n", err_kind_word(e->kind), e->msg);
	exit(EXIT_FAILURE);
}

static void session_id(char ret[TOKEN_ID_LEN + 1], const char *name, long n)
{
	(void)snprintf(ret, TOKEN_ID_LEN + 1, "%.8s-%d", name, (int)n);
}

/* It may be there already: then its acknowledgement was lost on the way. */
static void make_session(struct store *s, const char *name, long n)
{
	const struct store_session_max max = {1000, 1000};
	struct store_session new = {.ttl_sec = 100000};
	struct err e;
	int r;

	session_id(new.id, name, n);
	r = store_session_known(s, new.id, &e);
	check(r, &e);
	if (r > 0)
		return;
	(void)snprintf(new.tenant, sizeof(new.tenant), "%s", name);
	new.used_ms = new.created_ms = store_now_ms();
	check(store_session_create(s, &new, &max, &e), &e);
}

static void remove_session(struct store *s, const char *name, long n)
{
	char id[TOKEN_ID_LEN + 1];
	struct err e;

	session_id(id, name, n);
	check(store_session_delete(s, id, &e), &e);
}

static void change_key(struct store *s, const char *name, long n)
{
	static char value[VALUE_MAX + 32];
	char key[16];
	struct store_key k = {.tenant = name, .space = "s"};
	struct store_meta m = {.size = (uint64_t)(n * 37 % VALUE_MAX)};
	size_t len;
	struct err e;

	k.key = (const uint8_t *)key;
	k.key_len = (size_t)snprintf(key, sizeof(key), "%ld", n % KEYS);
	if (n % 7 == 0) {
		check(store_memory_delete(s, &k, NULL, NULL, &e), &e);
		return;
	}
	memset(value, 'x', sizeof(value));
	len = (size_t)snprintf(value, sizeof(value), "%ld ", n);
	value[len] = 'x';
	m.size += len;
	check(
	    store_memory_put(s, &k, value, &m, &no_limits, NULL, NULL, &e), &e);
}

int main(int argc, char **argv)
{
	struct store *s;
	struct err e;

	if (argc != 4)
		return 2;
	check(token_init(&e), &e);
	check(store_new(argv[1], &s, &e), &e);
	for (long n = strtol(argv[3], NULL, 10);; n++) {
		char line[16];
		int len = snprintf(line, sizeof(line), "%ld\n", n);

		if (n % 5 == 0)
			make_session(s, argv[2], n);
		if (n % 5 == 3)
			remove_session(s, argv[2], n - 3);
		change_key(s, argv[2], n);
		if (write(STDOUT_FILENO, line, (size_t)len) != len)
			return 1;
	}
}
