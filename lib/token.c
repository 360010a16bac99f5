/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/token.h"

#include <sodium.h>

_Static_assert(TOKEN_HASH_LEN == crypto_generichash_BYTES,
    "the hash has libsodium's recommended size");
_Static_assert(
    sodium_base64_ENCODED_LEN(16, sodium_base64_VARIANT_URLSAFE_NO_PADDING) ==
	TOKEN_ID_LEN + 1,
    "an identifier is 128 bits in base64url");

int token_init(struct err *e)
{
	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL, 0, "libsodium cannot start");
	return 0;
}

void token_random(void *ret, size_t n)
{
	randombytes_buf(ret, n);
}

void token_new_id(char ret[TOKEN_ID_LEN + 1])
{
	uint8_t bits[16];

	randombytes_buf(bits, sizeof(bits));
	(void)sodium_bin2base64(ret, TOKEN_ID_LEN + 1, bits, sizeof(bits),
	    sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

void token_hash(const char *token, size_t len, uint8_t ret[TOKEN_HASH_LEN])
{
	/* Fails only for sizes out of range, and these are constants. */
	(void)crypto_generichash(
	    ret, TOKEN_HASH_LEN, (const unsigned char *)token, len, NULL, 0);
}

bool token_hash_equal(
    const uint8_t a[TOKEN_HASH_LEN], const uint8_t b[TOKEN_HASH_LEN])
{
	return sodium_memcmp(a, b, TOKEN_HASH_LEN) == 0;
}
