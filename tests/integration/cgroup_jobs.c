/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/integration/cgroup_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "runner/cgroup_ops.h"

#define MIB (1u << 20)

int job_nothing(void)
{
	return 0;
}

int job_sleep(void)
{
	while (pause() < 0)
		;
	return 1;
}

static int touch(size_t mib)
{
	volatile char *p = malloc(mib * MIB);

	if (p == NULL)
		return 1;
	for (size_t i = 0; i < mib * MIB; i += 4096)
		p[i] = 1;
	return 0;
}

int job_hog(void)
{
	return touch(200);
}

int job_flood(void)
{
	int dir = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (cgroup_write(dir, "oom_score_adj", "1000") < 0)
		return 1;
	return touch(2048);
}

int job_modest(void)
{
	return touch(32);
}

int job_spin(void)
{
	for (volatile unsigned i = 1; i != 0; i |= 1)
		;
	return 1;
}

int job_fork_bomb(void)
{
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGCHLD, SIG_IGN);
	(void)setsid();
	while (fork() >= -1)
		;
	return 1;
}

int job_count_forks(void)
{
	int forks = 0;
	pid_t pid;

	while ((pid = fork()) > 0)
		forks++;
	if (pid == 0)
		return job_sleep();
	return errno == EAGAIN ? forks : 0;
}
