/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_RUNSC_H
#define ISOBOX_RUNSC_H

#include <stdbool.h>

#define RUNSC_ARGV_MAX 20

/* runsc wants a name for the container; it is alone in its state directory. */
#define RUNSC_CONTAINER "box"

/*
 * The arguments of `runsc run`, NULL-terminated. Pure; the strings are static or
 * borrowed. `platform` is systrap or ptrace. network:
 * runsc takes over the links of the namespace that it is started in. platform_flag holds the text
 * of one flag and lives as long as argv.
 */
void runsc_argv(const char *platform, bool network, char platform_flag[64],
    const char *argv[RUNSC_ARGV_MAX]);

#endif
