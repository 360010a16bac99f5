/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runsc.h"

#include <stdio.h>

#include "runner/bundle.h"

void runsc_argv(const char *platform, bool network, char platform_flag[64],
    const char *argv[RUNSC_ARGV_MAX])
{
	int n = 0;

	(void)snprintf(platform_flag, 64, "--platform=%s", platform);
	argv[n++] = BUNDLE_RUNSC;
	argv[n++] = "--root=" BUNDLE_STATE;
	argv[n++] = platform_flag;
	argv[n++] = network ? "--network=sandbox" : "--network=none";
	/* The default, said here: no packets of the program's own making. */
	argv[n++] = "--net-raw=false";
	/* Limits are ours: the leaf was set up before runsc started. */
	argv[n++] = "--ignore-cgroups";
	/* The default lays a writable overlay over the root file system and
	 * keeps its data in a file beside it; ours is read-only. */
	argv[n++] = "--overlay2=none";
	/* The image does not change under a running sandbox: let the sentry
	 * cache it without asking. */
	argv[n++] = "--file-access=exclusive";
	argv[n++] = "--host-uds=none";
	argv[n++] = "--host-fifo=none";
	argv[n++] = "--oci-seccomp=false";
	argv[n++] = "run";
	argv[n++] = "--bundle=" BUNDLE_DIR;
	argv[n++] = RUNSC_CONTAINER;
	argv[n] = NULL;
}
