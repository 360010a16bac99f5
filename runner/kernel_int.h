/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_KERNEL_INT_H
#define ISOBOX_KERNEL_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "runner/kernel.h"
#include "runner/supervisor.h"

/* Between kernel_slots.c, kernel_spare.c and kernel_room.c. */

/* ---- kernel_slots.c ------------------------------------------------------ */

const struct runtime *kernel_runtime(const struct server *s, const char *name,
    const char *version, struct err *e);
struct limits kernel_limits(const struct server *s, const struct runtime *rt);
void kernel_set_disk(struct server *s, struct kernel_order *ret);

/* k, which wants a slot, gets one; it may be no more afterwards. */
void kernel_launch(struct server *s, struct kernel *k);

/* Who waits for a session and may be k's; NULL. */
struct worker *kernels_adoptable(
    const struct server *s, const struct kernel *k);

/* It takes steps and has none. */
bool kernel_is_idle(const struct kernel *k);

/* ---- kernel_spare.c: interpreters that wait for a session ------------------ */

struct kernel_kind kernel_kind_of(
    const struct server *s, const struct kernel *k);

/* One of that kind; NULL. */
struct worker *kernels_find_spare(
    const struct server *s, const struct kernel_kind *kind);

/* Boots one if one should wait. */
void kernels_keep_waiting(struct server *s, uint64_t now_us);

/* Gives one up, for memory; false when there is none. */
bool kernels_drop_one(struct server *s);

/* ---- kernel_room.c: whose slot it is ---------------------------------------- */

/* Gives slots to who wants one, makes room, refuses whose time is over. */
void kernels_serve_wanting(struct server *s, uint64_t now_us);

/* When one of them is to be refused; UINT64_MAX. */
uint64_t kernels_refuse_us(const struct server *s);

#endif
