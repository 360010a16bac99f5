/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/app.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "fcgi/auth.h"
#include "lib/log.h"
#include "lib/token.h"

/* Of 8 MiB at most, in a process of some hundred. */
#define LARGE_ANSWERS 16u

static int load_catalog(struct app *app, struct err *e)
{
	struct catalog *c;
	int r = catalog_load(app->config, &c, e);

	if (r < 0)
		return r;
	shared_slot_set(&app->catalog, &c->shared);
	return 0;
}

static int load_keys(struct app *app, struct err *e)
{
	struct keyring *k;
	int r = keyring_new(app->config, &k, e);

	if (r < 0)
		return r;
	shared_slot_set(&app->keys, &k->shared);
	return 0;
}

/* No limit, no file: then the state directory need not exist. */
static int open_ratelimit(struct app *app, struct err *e)
{
	char path[PATH_MAX];
	int n;

	if (app->config->rate_per_min == 0)
		return 0;
	n = snprintf(
	    path, sizeof(path), "%s/ratelimit", app->config->state_dir);
	if (n < 0 || (size_t)n >= sizeof(path))
		return err_set(e, ERR_INTERNAL, ENAMETOOLONG,
		    "state_dir: the path is too long");
	return ratelimit_open(path, &app->ratelimit, e);
}

int app_init(struct app *app, const char *config_path, struct err *e)
{
	int r;

	memset(app, 0, sizeof(*app));
	app->config_path = config_path;
	accesslog_init(&app->log);
	atomic_init(&app->kernels_used, -1);
	atomic_init(&app->kernels_us, 0);
	atomic_flag_clear(&app->asking_kernels);
	(void)sem_init(&app->large, 0, LARGE_ANSWERS);
	shared_slot_init(&app->catalog);
	shared_slot_init(&app->keys);
	if ((r = token_init(e)) < 0 ||
	    (r = config_load(config_path, &app->config, e)) < 0 ||
	    (r = load_keys(app, e)) < 0 || (r = load_catalog(app, e)) < 0 ||
	    (r = open_ratelimit(app, e)) < 0 ||
	    (r = store_new(app->config->state_dir, &app->store, e)) < 0 ||
	    (r = accesslog_open(&app->log, app->config->access_log, e)) < 0) {
		app_done(app);
		return r;
	}
	return 0;
}

void app_done(struct app *app)
{
	accesslog_close(&app->log);
	if (app->ratelimit != NULL)
		ratelimit_close(app->ratelimit);
	store_free(app->store);
	(void)sem_destroy(&app->large);
	shared_slot_done(&app->catalog);
	shared_slot_done(&app->keys);
	config_free(app->config);
}

int app_open_store(struct app *app, struct err *e)
{
	int r = store_open(app->store, e);

	return r < 0 ? err_wrap(e, "%.100s/isobox.db", app->config->state_dir)
		     : 0;
}

void app_log_missing(struct app *app)
{
	struct shared *s = shared_slot_get(&app->catalog);

	registry_log_missing(((const struct catalog *)s)->registry);
	shared_put(s);
}

void app_reload(struct app *app)
{
	struct err e;

	log_info("reading languages and keys again");
	if (load_catalog(app, &e) < 0)
		log_error("the languages stay as they were: %s", e.msg);
	else
		app_log_missing(app);
	if (config_reload_keys(app->config_path, app->config, &e) < 0 ||
	    load_keys(app, &e) < 0)
		log_error("the keys stay as they were: %s", e.msg);
	if (accesslog_open(&app->log, app->config->access_log, &e) < 0)
		log_error("the access log stays as it was: %s", e.msg);
}
