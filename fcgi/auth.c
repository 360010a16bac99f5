/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/auth.h"

#include <errno.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void keyring_free(struct shared *s)
{
	free(s);
}

int keyring_new(
    const struct config *config, struct keyring **ret, struct err *e)
{
	size_t bytes = config->key_count * TOKEN_HASH_LEN;
	struct keyring *k = malloc(sizeof(*k) + bytes);

	if (k == NULL)
		return err_sys(e, ENOMEM, "the keys");
	shared_init(&k->shared, keyring_free);
	k->count = config->key_count;
	if (bytes > 0)
		memcpy(k->hashes, config->key_hashes, bytes);
	*ret = k;
	return 0;
}

/* What follows "Bearer" and its blanks; NULL for another scheme. */
static const char *bearer_token(const char *authorization)
{
	static const char scheme[] = "Bearer";
	const char *s = authorization;

	if (s == NULL || strncasecmp(s, scheme, sizeof(scheme) - 1) != 0)
		return NULL;
	s += sizeof(scheme) - 1;
	if (*s != ' ')
		return NULL;
	return s + strspn(s, " ");
}

/* Looks at every key, also behind the right one: the time tells nothing. */
static bool is_known(
    const struct keyring *keys, const uint8_t hash[TOKEN_HASH_LEN])
{
	bool known = false;

	for (size_t i = 0; i < keys->count; i++)
		known |= token_hash_equal(keys->hashes[i], hash);
	return known;
}

int auth_check(const struct keyring *keys, const struct request *q,
    struct tenant *ret, struct err *e)
{
	uint8_t hash[TOKEN_HASH_LEN];
	const char *key;

	if (keys->count == 0) {
		memcpy(ret->name, TENANT_PUBLIC, sizeof(TENANT_PUBLIC));
		return 0;
	}
	key = q->api_key != NULL ? q->api_key : bearer_token(q->authorization);
	if (key == NULL || q->auth_repeated)
		return err_set(e, ERR_UNAUTHORIZED, EACCES, "%s", "");
	token_hash(key, strlen(key), hash);
	if (!is_known(keys, hash))
		return err_set(e, ERR_UNAUTHORIZED, EACCES, "%s", "");
	(void)sodium_bin2hex(ret->name, sizeof(ret->name), hash, sizeof(hash));
	return 0;
}
