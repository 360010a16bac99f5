/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_EXECNET_H
#define ISOBOX_FCGI_EXECNET_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/err.h"
#include "lib/job.h"
#include "lib/json.h"
#include "lib/limits.h"

/* The member `network` of a request. */
struct execnet {
	bool on;
	struct blob names[LIMIT_ALLOW]; /* borrowed from the body */
	size_t count; /* 0: everything public */
};

/* true (the default), false, or {"allow": ["pypi.org", "*.github.com"]}. */
int execnet_take(struct json_object *root, struct execnet *ret, struct err *e);

#endif
