/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_SERVER_H
#define ISOBOX_SERVER_H

#include "lib/config.h"
#include "lib/err.h"
#include "runner/egress/policy.h"

/*
 * The runner's event loop: clients, admission, supervisors, health, counters.
 * Returns 0 after a clean end (SIGTERM, SIGINT), negative errno when it could
 * not start. SIGHUP reads the registry again.
 */
int server_run(const struct config *config, const struct egress_policy *policy,
    struct err *e);

#endif
