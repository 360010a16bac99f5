/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/file.h"
#include "lib/json.h"
#include "lib/log.h"

#define TEXT_MAX (1u << 20)

static const char *word(bool b)
{
	return b ? "true" : "false";
}

static void put_runtime(struct buf *out, const struct runtime *r, bool kernels)
{
	buf_puts(out, "{\"language\":");
	json_put_cstr(out, r->name);
	buf_puts(out, ",\"version\":");
	json_put_cstr(out, r->version);
	buf_puts(out, ",\"aliases\":[");
	for (size_t i = 0; r->aliases != NULL && r->aliases[i] != NULL; i++) {
		if (i > 0)
			buf_putc(out, ',');
		json_put_cstr(out, r->aliases[i]);
	}
	buf_printf(out,
	    "],\"compiled\":%s,\"kernel\":%s,\"backend\":\"" BACKEND "\"}",
	    word(r->compile != NULL && r->compile[0] != NULL),
	    word(kernels && r->kernel));
}

static void put_runtimes(
    struct buf *out, const struct registry *registry, bool kernels)
{
	bool first = true;

	buf_putc(out, '[');
	for (size_t i = 0; i < registry->count; i++) {
		if (!registry->runtimes[i].available)
			continue;
		if (!first)
			buf_putc(out, ',');
		put_runtime(out, &registry->runtimes[i], kernels);
		first = false;
	}
	buf_putc(out, ']');
}

/* A text that lacks is left out: it is documentation, not the service. */
static void read_text(const char *dir, const char *name, struct buf *out)
{
	char path[PATH_MAX];
	struct err e;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (file_read(AT_FDCWD, path, 0, TEXT_MAX, out, &e) == 0)
		return;
	buf_free(out);
	if (e.code != ENOENT)
		log_warn("%s: %s", path, e.msg);
}

static void catalog_free(struct shared *s)
{
	struct catalog *c = (struct catalog *)s;

	registry_free(c->registry);
	buf_free(&c->runtimes);
	buf_free(&c->llms);
	buf_free(&c->openapi);
	free(c);
}

int catalog_load(
    const struct config *config, struct catalog **ret, struct err *e)
{
	struct catalog *c = calloc(1, sizeof(*c));
	int r;

	if (c == NULL)
		return err_sys(e, ENOMEM, "the languages");
	shared_init(&c->shared, catalog_free);
	r = registry_load(
	    config->registry_dir, config->images_dir, &c->registry, e);
	if (r < 0) {
		free(c);
		return r;
	}
	put_runtimes(&c->runtimes, c->registry, config->kernel_slots > 0);
	read_text(config->data_dir, "llms.txt", &c->llms);
	read_text(config->data_dir, "openapi.yaml", &c->openapi);
	if (c->runtimes.failed) {
		catalog_free(&c->shared);
		return err_sys(e, ENOMEM, "the languages");
	}
	*ret = c;
	return 0;
}
