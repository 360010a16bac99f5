/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CONFIG_VALUE_H
#define ISOBOX_CONFIG_VALUE_H

#include "lib/config.h"
#include "lib/config_table.h"
#include "lib/err.h"
#include "lib/ydoc.h"

/*
 * Puts one value into its member of c, replacing what was there. Messages of the
 * first begin with "must be": the caller says whose value it is. Neither quotes
 * a value, which may be a secret.
 */
int config_set_text(struct config *c, const struct config_key *k,
    const char *text, struct err *e);
int config_set_node(struct config *c, const struct config_key *k,
    const struct ydoc *d, const struct ydoc_node *n, struct err *e);

/* All keys of a file. */
int config_set_doc(struct config *c, const struct ydoc *d, struct err *e);

/* Frees what k's member owns and clears it. */
void config_clear(struct config *c, const struct config_key *k);

/* The member of c, typed. */
static inline void *config_member(struct config *c, const struct config_key *k)
{
	return (char *)c + k->offset;
}

#endif
