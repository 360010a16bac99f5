/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_RUNSC_H
#define ISOBOX_RUNSC_H

#include <stdbool.h>

#define RUNSC_ARGV_MAX 20

/* runsc wants a name for the container; it is alone in its state directory. */
#define RUNSC_CONTAINER "box"

enum runsc_verb {
	RUNSC_RUN,
	RUNSC_RESTORE, /* from BUNDLE_IMAGE */
	/* Of a sandbox that runs, in its namespaces: */
	RUNSC_PAUSE,
	RUNSC_RESUME,
	/* Into descriptor RUNSC_IMAGE_FD; it runs on, or is still paused. A
	 * compressed image is a quarter of the size and takes more than twice
	 * as long to write and to restore (docs/architecture.md). */
	RUNSC_SAVE,
	RUNSC_SAVE_SMALL
};

/* The directory that RUNSC_SAVE writes to. */
#define RUNSC_IMAGE_FD 3

/*
 * The arguments of runsc, NULL-terminated. Pure; the strings are static or
 * borrowed. `platform` is systrap or ptrace. network: runsc takes over the links of
 * the namespace that it is started in. platform_flag holds the text of one flag and
 * lives as long as argv.
 */
void runsc_argv(enum runsc_verb verb, const char *platform, bool network,
    char platform_flag[64], const char *argv[RUNSC_ARGV_MAX]);

#endif
