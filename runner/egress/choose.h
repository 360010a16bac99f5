/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_EGRESS_CHOOSE_H
#define ISOBOX_EGRESS_CHOOSE_H

#include "lib/config.h"
#include "runner/egress/policy.h"

/*
 * Settles which carrier there is, once, at the runner's start:
 *
 *	slirp4netns	that one
 *	pasta		that one, or nobody gets a network: when it is too old,
 *			or when what it does in a trial is wrong
 *	auto		slirp4netns: pasta's 16 MB a sandbox are too many.
 *			pasta where only that is installed, or where slirp4netns
 *			fails in a trial and pasta does not
 *
 * Sets the policy's driver, carrier, refused and choice. Of what may pass, such as
 * a host that has no address yet, each sandbox's own verification tells.
 */
void egress_choose(struct egress_policy *p, const struct config *config);

#endif
