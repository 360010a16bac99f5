/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CONFIG_TABLE_H
#define ISOBOX_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The table behind config.h, for config*.c and their test: reading the file and
 * the environment, ranges, and what --check-config prints all come from it.
 */
enum config_type {
	CONFIG_BOOL, /* bool */
	CONFIG_UINT, /* uint32_t from min to max */
	CONFIG_TEXT, /* char *, min to max visible ASCII characters */
	CONFIG_PATH, /* char *, absolute, at most max bytes */
	CONFIG_LOG, /* char *, as CONFIG_PATH, or "-", or "" */
	CONFIG_CHOICE, /* char *, one word of choices */
	CONFIG_LIST /* char **, min to max entries of visible ASCII without
		     * comma; in the environment separated by commas */
};

struct config_key {
	const char *name; /* in the file */
	const char *env;
	enum config_type type;
	bool secret; /* never printed */
	size_t offset; /* of the member of struct config */
	uint64_t min;
	uint64_t max;
	const char *def; /* as in the environment; NULL = not set */
	const char *choices; /* "one|two" */
	const char *meaning;
};

/* An entry of a list, a key included: it has to fit a header line. */
#define CONFIG_ENTRY_MAX 512u

extern const struct config_key config_keys[];
extern const size_t config_key_count;

/* NULL when there is none of that name. */
const struct config_key *config_key_by_name(const char *name);
const struct config_key *config_key_by_env(const char *env, size_t env_len);

#endif
