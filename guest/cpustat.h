/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_GUEST_CPUSTAT_H
#define ISOBOX_GUEST_CPUSTAT_H

#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"

/*
 * The CPU time of a process that runs: user and system, the children included
 * that it has waited for, in microseconds; gVisor counts in ticks of 10 ms. The
 * descriptor, of /proc/PID/stat, is the caller's to close. What cannot be read
 * is what it was before.
 */
int cpustat_open(pid_t pid, int *ret_fd, struct err *e);
uint64_t cpustat_read(int fd, uint64_t before_us);

#endif
