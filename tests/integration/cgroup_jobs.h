/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CGROUP_JOBS_H
#define ISOBOX_CGROUP_JOBS_H

/* What the processes of cgroup_live.c do in a leaf; each value is an exit
 * status. */
int job_nothing(void);
int job_sleep(void); /* for ever */
int job_modest(void); /* 32 MiB: 0 */
int job_hog(void); /* 200 MiB: 0, if nobody minds */
int job_flood(void); /* 2 GiB, as the first to be killed for it */
int job_spin(void); /* for ever */
int job_fork_bomb(void); /* for ever, in a session of its own */
int job_count_forks(void); /* until EAGAIN: how many there were */

#endif
