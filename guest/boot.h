/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_BOOT_H
#define ISOBOX_GUEST_BOOT_H

#include "lib/err.h"

/*
 * init itself, as the sandbox's kernel (sentry) knows users. The program is
 * SANDBOX_UID there, the only user that a directory of the host can be owned
 * by; init must be anybody else, or the program could signal and trace it.
 */
#define INIT_UID 1
#define SANDBOX_UID 0

/*
 * Where the whole file tree is mounted once more. The program gets that tree by
 * chroot(2): inside, every path is what it is outside. Any directory that all
 * root file systems have will do.
 */
#define PROGRAM_ROOT "/box"

enum pipe_end {
	PIPE_READ,
	PIPE_WRITE
};

/* What the program's standard descriptors are connected to. init's ends do not
 * block; all are close-on-exec. */
struct program_pipes {
	int in[2];
	int out[2];
	int err[2];
};

/*
 * Prepares the sandbox and gives up what of init's privileges is not needed any
 * more. Run once, as the first thing: PID 1, uid 0 of the sandbox, CAP_CHOWN,
 * CAP_KILL, CAP_SETFCAP, CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN and CAP_SYS_RESOURCE.
 */
int boot(struct program_pipes *ret_pipes, int *ret_signal_fd, struct err *e);

/* Gives up the rest, once the last program is started. */
int boot_drop_privileges(struct err *e);

/* The same, but for the right to signal what it has started. */
int boot_keep_kill(struct err *e);

/* After a restore, whose descriptors are others: as boot() left them? */
int boot_check_descriptors(struct err *e);

#endif
