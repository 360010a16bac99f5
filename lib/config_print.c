/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/config.h"
#include "lib/config_table.h"

static const void *member(const struct config *c, const struct config_key *k)
{
	return (const char *)c + k->offset;
}

/* As a YAML double-quoted scalar; values hold no control characters. */
static void print_quoted(const char *s)
{
	putchar('"');
	for (; *s != '\0'; s++) {
		if (*s == '"' || *s == '\\')
			putchar('\\');
		putchar(*s);
	}
	putchar('"');
}

static void print_list(char *const *list)
{
	putchar('[');
	for (size_t i = 0; list[i] != NULL; i++) {
		if (i > 0)
			printf(", ");
		print_quoted(list[i]);
	}
	putchar(']');
}

static void print_range(const struct config_key *k)
{
	switch (k->type) {
	case CONFIG_BOOL:
		printf("; true or false");
		break;
	case CONFIG_UINT:
		printf("; %" PRIu64 " to %" PRIu64, k->min, k->max);
		break;
	case CONFIG_CHOICE:
		printf("; %s", k->choices);
		break;
	case CONFIG_LIST:
		printf("; a list of at most %" PRIu64, k->max);
		break;
	case CONFIG_TEXT:
	case CONFIG_PATH:
	case CONFIG_LOG:
		break;
	}
}

/* The value in force, or the line as a comment when none is set. */
static void print_value(const struct config *c, const struct config_key *k)
{
	const void *m = member(c, k);
	const char *const *text = m;
	char *const *const *list = m;

	if (k->secret && strncmp(k->name, "api_", 4) == 0) {
		printf("# %s: (%zu keys in all)\n", k->name, c->key_count);
		return;
	}
	if (k->type != CONFIG_BOOL && k->type != CONFIG_UINT && *text == NULL) {
		printf("# %s: (not set)\n", k->name);
		return;
	}
	if (k->secret) {
		printf("# %s: (set, not shown)\n", k->name);
		return;
	}
	printf("%s: ", k->name);
	if (k->type == CONFIG_BOOL)
		printf("%s", *(const bool *)m ? "true" : "false");
	else if (k->type == CONFIG_UINT)
		printf("%" PRIu32, *(const uint32_t *)m);
	else if (k->type == CONFIG_LIST)
		print_list(*list);
	else
		print_quoted(*text);
	putchar('\n');
}

/* The output is a valid configuration file of the same meaning, keys apart. */
void config_print(const struct config *c)
{
	for (size_t i = 0; i < config_key_count; i++) {
		const struct config_key *k = &config_keys[i];

		printf("# %s\n# %s", k->meaning, k->env);
		print_range(k);
		printf("\n");
		print_value(c, k);
		printf("\n");
	}
}
