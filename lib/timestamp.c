/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/timestamp.h"

#include <stdio.h>
#include <time.h>

void timestamp(int64_t ms, char ret[TIMESTAMP_SIZE])
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;
	size_t n;

	ret[0] = '\0';
	if (ms < 0 || gmtime_r(&seconds, &tm) == NULL || tm.tm_year > 8099)
		return;
	n = strftime(ret, TIMESTAMP_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(ret + n, TIMESTAMP_SIZE - n, ".%03dZ", (int)(ms % 1000));
}
