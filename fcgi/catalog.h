/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_CATALOG_H
#define ISOBOX_FCGI_CATALOG_H

#include "fcgi/shared.h"
#include "lib/buf.h"
#include "lib/config.h"
#include "lib/err.h"
#include "lib/registry.h"

#define BACKEND "gvisor" /* the one that there is */

/*
 * What the service offers, read from files at the start and at SIGHUP: the
 * languages, and the two texts about the API. A request opens no file.
 */
struct catalog {
	struct shared shared;
	struct registry *registry;
	struct buf runtimes; /* the answer of GET /runtimes */
	struct buf llms; /* empty: there is no such file */
	struct buf openapi;
};

int catalog_load(
    const struct config *config, struct catalog **ret, struct err *e);

#endif
