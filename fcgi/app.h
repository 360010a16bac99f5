/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_APP_H
#define ISOBOX_FCGI_APP_H

#include <semaphore.h>

#include "fcgi/accesslog.h"
#include "fcgi/catalog.h"
#include "fcgi/metrics.h"
#include "fcgi/shared.h"
#include "fcgi/transfer.h"
#include "lib/config.h"
#include "lib/err.h"
#include "lib/ratelimit.h"
#include "lib/store.h"

/* What all requests share. The configuration does not change while it runs, but
 * for the keys, which requests see through `keys` only. */
struct app {
	const char *config_path; /* as given, NULL = the usual place */
	struct config *config;
	struct shared_slot catalog; /* struct catalog */
	struct shared_slot keys; /* struct keyring */
	struct ratelimit *ratelimit; /* NULL: no limit is set */
	struct store *store; /* a CGI program opens it when it is used */
	/* Slots of kernels in use, as the runner said last; -1: it did not. */
	atomic_int kernels_used;
	_Atomic uint64_t kernels_us; /* when that was asked for */
	atomic_flag asking_kernels; /* one thread does, for all */
	sem_t large; /* places for large answers that are held in memory */
	struct accesslog log;
	struct metrics metrics;
	struct transfers transfers;
};

/* Reads and opens all of it. On failure *app needs no app_done(). */
int app_init(struct app *app, const char *config_path, struct err *e);
void app_done(struct app *app);

/* Opens the store, for a service that is to last. */
int app_open_store(struct app *app, struct err *e);

/* Logs what the operator should know of a service that starts. */
void app_log_missing(struct app *app);

/* SIGHUP: languages, texts and keys are read again and the access log is opened
 * again. What is bad stays as it was, and the log says why. */
void app_reload(struct app *app);

#endif
