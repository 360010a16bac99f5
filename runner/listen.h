/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_LISTEN_H
#define ISOBOX_LISTEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/err.h"

/*
 * A listening unix stream socket at path, mode 0660, non-blocking; its group is
 * what the directory gives it (setgid). One runner a path: *ret_lock_fd holds
 * "path.lock" locked for the life of the process; a second one fails with EBUSY.
 * What a dead runner left at path is replaced.
 */
int listen_open(const char *path, int *ret_fd, int *ret_lock_fd, struct err *e);

/* Who may talk to us. */
struct peers {
	uid_t *uids;
	size_t count;
};

/* Our own user and each of names (user names or numbers, NULL-terminated). */
int peers_resolve(char *const *names, struct peers *ret, struct err *e);
void peers_free(struct peers *p);

/* Whether the peer of a connected socket is one of them (SO_PEERCRED). */
bool peers_allow(const struct peers *p, int fd, uid_t *ret_uid);

#endif
