/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/runsc.h"

#include <stdio.h>

#include "runner/bundle.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

/* The directory is in no sandbox's tree: a link of /proc leads to it. */
#define SAVE_TO "--image-path=/proc/self/fd/" STRING(RUNSC_IMAGE_FD)

#define VERB_WORDS 4

static const char *const verbs[][VERB_WORDS] = {
    [RUNSC_RUN] = {"run", "--bundle=" BUNDLE_DIR},
    [RUNSC_RESTORE] = {"restore", "--bundle=" BUNDLE_DIR,
	"--image-path=" BUNDLE_IMAGE},
    [RUNSC_PAUSE] = {"pause"},
    [RUNSC_RESUME] = {"resume"},
    /* Else the sandbox would end, whether it could be saved or not. */
    [RUNSC_SAVE] = {"checkpoint", "--leave-running", SAVE_TO,
	"--compression=none"},
    [RUNSC_SAVE_SMALL] = {"checkpoint", "--leave-running", SAVE_TO,
	"--compression=flate-best-speed"},
};

void runsc_argv(enum runsc_verb verb, const char *platform, bool network,
    char platform_flag[64], const char *argv[RUNSC_ARGV_MAX])
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
	for (int i = 0; i < VERB_WORDS && verbs[verb][i] != NULL; i++)
		argv[n++] = verbs[verb][i];
	argv[n++] = RUNSC_CONTAINER;
	argv[n] = NULL;
}
