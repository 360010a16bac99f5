/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_HARDEN_H
#define ISOBOX_HARDEN_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/err.h"

/*
 * Self-hardening of our own processes, each a step that only takes away.
 * What this kernel lacks (Landlock) is logged once and left out; anything else
 * that fails is an error.
 */

/* no_new_privs, no core files, RLIMIT_NOFILE raised to its hard limit (at most
 * nofile_max), SIGPIPE ignored, umask 0077. */
int harden_process(unsigned nofile_max, struct err *e);

/* Landlock: from here on files can be reached only below these paths (absent
 * ones are skipped). A thread-wide rule that new threads inherit: call it
 * before the first thread. A rule is for what stands at the path now: for a file
 * that will be replaced, name its directory. */
struct harden_path {
	const char *path;
	bool write;
};
int harden_files(const struct harden_path *paths, size_t n, struct err *e);

/* seccomp for isobox.fcgi: no exec, no ptrace, no mount, no module, no bpf, no
 * keyctl, no user namespaces. EPERM, not death. */
int harden_syscalls_fcgi(struct err *e);

#endif
