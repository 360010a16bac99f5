/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/config.h"
#include "lib/config_table.h"
#include "lib/config_value.h"
#include "lib/runtime.h"
#include "lib/utf8.h"
#include "lib/ydoc.h"

/* Any bytes as a configuration, as a file of the registry, as a variable. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void check_message(const struct err *e, const char *begin)
{
	check(e->code > 0 && e->kind == ERR_INTERNAL);
	check(strncmp(e->msg, begin, strlen(begin)) == 0);
	check(utf8_valid((const uint8_t *)e->msg, strlen(e->msg), NULL));
}

static void as_config(const struct ydoc *d)
{
	struct config *c = calloc(1, sizeof(*c));
	struct err e = {0};

	check(c != NULL);
	if (config_set_doc(c, d, &e) < 0)
		check_message(&e, "fuzz.yaml:");
	for (size_t i = 0; i < config_key_count; i++) {
		const struct config_key *k = &config_keys[i];
		const uint32_t *v = config_member(c, k);

		/* 0: not in the file */
		if (k->type == CONFIG_UINT)
			check(*v == 0 || (*v >= k->min && *v <= k->max));
	}
	config_free(c);
}

static void as_runtime(const struct ydoc *d)
{
	struct runtime rt = {0};
	struct err e = {0};

	if (runtime_from_doc(d, &rt, &e) < 0) {
		check_message(&e, "fuzz.yaml:");
	} else {
		struct limits l = rt.limits;

		limits_clamp(&l);
		check(memcmp(&l, &rt.limits, sizeof(l)) == 0);
		check(rt.run[0] != NULL && rt.run[0][0] != '\0');
		check(strchr(rt.image, '/') == NULL && rt.image[0] != '.');
	}
	runtime_done(&rt);
}

static void as_variable(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	struct config *c = calloc(1, sizeof(*c));

	check(text != NULL && c != NULL);
	for (size_t i = 0; i < config_key_count; i++) {
		struct err e = {0};

		if (config_set_text(c, &config_keys[i], text, &e) < 0)
			check_message(&e, "must be ");
	}
	free(text);
	config_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ydoc *d = NULL;
	struct err e = {0};

	if (ydoc_parse("fuzz.yaml", data, size, &d, &e) < 0) {
		check_message(&e, "fuzz.yaml:");
	} else {
		as_config(d);
		as_runtime(d);
		ydoc_free(d);
	}
	as_variable(data, size);
	return 0;
}
