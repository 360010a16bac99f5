/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CONFIG_KEYS_H
#define ISOBOX_CONFIG_KEYS_H

#include "lib/config.h"
#include "lib/err.h"

/*
 * Hashes api_key, api_keys and the lines of api_keys_file into c->key_hashes (a
 * key that comes twice counts once) and wipes the keys themselves. A file that
 * cannot be read or holds no key, and require_auth without a key, are errors.
 */
int config_take_keys(struct config *c, struct err *e);

/* Wipes and frees api_key and api_keys. */
void config_wipe_keys(struct config *c);

#endif
