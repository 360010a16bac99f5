/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/cpustat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* proc(5): utime, stime, cutime and cstime are fields 14 to 17. */
#define STAT_UTIME 14

int cpustat_open(pid_t pid, int *ret_fd, struct err *e)
{
	char path[40];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	*ret_fd = fd;
	return 0;
}

/* The sum of n numbers that begin at text. */
static uint64_t sum_numbers(const char *text, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++) {
		char *end;

		sum += strtoull(text, &end, 10);
		text = end;
	}
	return sum;
}

uint64_t cpustat_read(int fd, uint64_t before_us)
{
	const long hz = sysconf(_SC_CLK_TCK);
	char text[512];
	const char *at;
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	if (n <= 0 || hz <= 0)
		return before_us;
	text[n] = '\0';
	at = strrchr(text, ')'); /* the end of the name, field 2 */
	for (int field = 2; at != NULL && field < STAT_UTIME; field++)
		at = strchr(at + 1, ' ');
	if (at == NULL)
		return before_us;
	return sum_numbers(at, 4) * (1000000 / (uint64_t)hz);
}
