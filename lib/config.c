/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/config_keys.h"
#include "lib/config_table.h"
#include "lib/config_value.h"
#include "lib/ydoc.h"

#define DEFAULT_PATH ISOBOX_SYSCONFDIR "/isobox/isobox.yaml"

void config_free(struct config *c)
{
	if (c == NULL)
		return;
	for (size_t i = 0; i < config_key_count; i++)
		config_clear(c, &config_keys[i]);
	free(c->key_hashes);
	free(c);
}

static int set_defaults(struct config *c, struct err *e)
{
	for (size_t i = 0; i < config_key_count; i++) {
		const struct config_key *k = &config_keys[i];
		int r;

		if (k->def == NULL)
			continue;
		r = config_set_text(c, k, k->def, e);
		if (r < 0)
			return err_wrap(e, "default of %s", k->name);
	}
	return 0;
}

/* The file named by the caller or ISOBOX_CONFIG has to be there; the built-in
 * one may be absent, but not unreadable. */
static int set_from_file(struct config *c, const char *path, struct err *e)
{
	cleanup_ydoc struct ydoc *d = NULL;
	bool may_lack = false;
	int r;

	if (path == NULL)
		path = getenv("ISOBOX_CONFIG");
	if (path == NULL) {
		path = DEFAULT_PATH;
		may_lack = true;
	}
	if (path[0] == '\0')
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "ISOBOX_CONFIG: must be the path of a file, or not set");
	r = ydoc_load(path, &d, e);
	if (r == -ENOENT && may_lack)
		return 0;
	if (r < 0)
		return r;
	return config_set_doc(c, d, e);
}

static int set_from_variable(
    struct config *c, const char *var, size_t name_len, struct err *e)
{
	const struct config_key *k = config_key_by_env(var, name_len);
	int r;

	if (strncmp(var, "ISOBOX_CONFIG=", name_len + 1) == 0 ||
	    strncmp(var, "ISOBOX_TEST_", 12) == 0)
		return 0;
	if (k == NULL)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "%.*s: unknown variable; --check-config and "
		    "isobox.yaml(5) list the variables that there are",
		    name_len < 64 ? (int)name_len : 64, var);
	r = config_set_text(c, k, var + name_len + 1, e);
	return r < 0 ? err_wrap(e, "%s", k->env) : 0;
}

static int set_from_environment(struct config *c, struct err *e)
{
	for (char **var = environ; var != NULL && *var != NULL; var++) {
		size_t name_len = strcspn(*var, "=");
		int r;

		if (strncmp(*var, "ISOBOX_", 7) != 0 ||
		    (*var)[name_len] == '\0')
			continue;
		r = set_from_variable(c, *var, name_len, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Upstream's installer puts runsc in the first place, Debian in the second. */
static int set_rest(struct config *c, struct err *e)
{
	const char *runsc = "/usr/local/bin/runsc";

	if (c->allowed_users == NULL)
		c->allowed_users = calloc(1, sizeof(*c->allowed_users));
	if (c->allowed_users == NULL)
		return err_sys(e, ENOMEM, "cannot read the configuration");
	if (c->runsc != NULL)
		return 0;
	if (access(runsc, X_OK) < 0)
		runsc = "/usr/bin/runsc";
	return config_set_text(c, config_key_by_name("runsc"), runsc, e);
}

static int fill(struct config *c, const char *path, struct err *e)
{
	int r = set_defaults(c, e);

	if (r == 0)
		r = set_from_file(c, path, e);
	if (r == 0)
		r = set_from_environment(c, e);
	if (r == 0)
		r = set_rest(c, e);
	return r;
}

/* NULL on failure. */
static struct config *load(const char *path, struct err *e)
{
	struct config *c = calloc(1, sizeof(*c));

	if (c == NULL) {
		(void)err_sys(e, ENOMEM, "cannot read the configuration");
		return NULL;
	}
	if (fill(c, path, e) < 0) {
		config_free(c);
		return NULL;
	}
	return c;
}

/* The same with the keys. */
static struct config *load_all(const char *path, struct err *e)
{
	struct config *c = load(path, e);

	if (c != NULL && config_take_keys(c, e) < 0) {
		config_free(c);
		return NULL;
	}
	return c;
}

int config_load(const char *path, struct config **ret, struct err *e)
{
	struct config *c = load_all(path, e);

	if (c == NULL)
		return -e->code;
	*ret = c;
	return 0;
}

int config_load_without_keys(
    const char *path, struct config **ret, struct err *e)
{
	struct config *c = load(path, e);

	if (c == NULL)
		return -e->code;
	config_wipe_keys(c);
	*ret = c;
	return 0;
}

int config_reload_keys(const char *path, struct config *c, struct err *e)
{
	struct config *fresh = load_all(path, e);
	uint8_t(*hashes)[TOKEN_HASH_LEN];
	int r = 0;

	if (fresh == NULL)
		return -e->code;
	if (fresh->key_count == 0 && c->key_count > 0) {
		r = err_set(e, ERR_INTERNAL, EINVAL,
		    "no key is left; restart the service to open it to "
		    "everybody");
	} else {
		hashes = c->key_hashes;
		c->key_hashes = fresh->key_hashes;
		c->key_count = fresh->key_count;
		fresh->key_hashes = hashes;
	}
	config_free(fresh);
	return r;
}
