/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_BUNDLE_H
#define ISOBOX_BUNDLE_H

#include <stdbool.h>

#include "lib/buf.h"

/* Where things stand in the sandbox's own tree of the host, see sandbox.c. */
#define BUNDLE_DIR "/bundle"
#define BUNDLE_ROOTFS "/rootfs"
#define BUNDLE_STATE "/state"
#define BUNDLE_RUNSC "/runsc"
#define BUNDLE_IMAGE "/image" /* what is restored */

/* The same there and in the sandbox: what a session keeps. */
#define BUNDLE_WORKSPACE "/workspace"
#define BUNDLE_MEMORY "/memory"

/* Where isobox-init stands inside every image. */
#define BUNDLE_INIT "/usr/libexec/isobox/init"

struct bundle_spec {
	bool scratch_exec; /* may /box and /tmp execute files */
	bool workspace; /* is there something at BUNDLE_WORKSPACE */
	bool memory;
};

/* Appends the OCI config.json of a sandbox. Pure. */
void bundle_config(const struct bundle_spec *spec, struct buf *out);

#endif
