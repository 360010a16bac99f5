/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_LISTEN_H
#define ISOBOX_FCGI_LISTEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/err.h"

/* A socket of our own in the file system. */
struct listener {
	int fd;
	const char *path; /* NULL: inherited, not ours to remove */
	dev_t dev;
	ino_t ino;
};

/*
 * Makes a listening unix socket at path with these permissions (its group is
 * what the directory gives it). What a dead process left there is replaced; a
 * socket that answers, or anything that is no socket, is an error. It appears
 * under its name only when it can be connected to. path must outlive *ret.
 */
int listen_at(
    const char *path, mode_t mode, struct listener *ret, struct err *e);

/* Whether descriptor 0 is a listening socket. */
bool listen_is_inherited(void);

/* Takes descriptor 0 as the socket, which must be a unix socket: whoever can
 * connect speaks for the web server, and to TCP everybody can. */
int listen_inherit(struct listener *ret, struct err *e);

/* Stops listening; removes the name if it is still our socket. */
void listen_close(struct listener *l);

#endif
