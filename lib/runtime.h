/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_RUNTIME_H
#define ISOBOX_RUNTIME_H

#include "lib/err.h"
#include "lib/registry.h"
#include "lib/ydoc.h"

/*
 * Reads one YAML file of the registry into *rt, which is zeroed before; checks
 * all that can be checked in one file. On failure too, the caller lets go of *rt
 * by runtime_done(). rootfs, available and why are left to registry.c.
 */
int runtime_read(const char *path, struct runtime *rt, struct err *e);
int runtime_from_doc(const struct ydoc *d, struct runtime *rt, struct err *e);
void runtime_done(struct runtime *rt);

#endif
