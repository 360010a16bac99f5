/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_MEMORY_H
#define ISOBOX_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct server;

/*
 * The memory of the subtree, which its cap bounds: an eighth of it is left free
 * beside what is in use. Given up for that is, in this order, what waits for a run,
 * what waits for a kernel session, and idle kernels, which go to disk.
 */

/* Whether there is room for `more` bytes and the reserve; also when the kernel does
 * not tell. */
bool memory_has_room(struct server *s, uint64_t more);

/* Gives up one thing, whatever memory there is. True: something is given up, or is
 * just going. */
bool memory_relieve(struct server *s, uint64_t now_us);

/* Gives up one thing when memory is short; true when it did. To be called again
 * when *ret_look_us has come. */
bool memory_look(struct server *s, uint64_t now_us, uint64_t *ret_look_us);

#endif
