/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bundle.c: prints what isobox-runner gives runsc: the arguments, one a line, an
 * empty line, and config.json. So the bench runs the very same bundle.
 */
#include <stdio.h>

#include "lib/buf.h"
#include "runner/bundle.h"
#include "runner/runsc.h"

int main(void)
{
	const struct bundle_spec spec = {.scratch_exec = false};
	const char *argv[RUNSC_ARGV_MAX];
	struct buf config = {0};
	char flag[64];

	runsc_argv(RUNSC_RUN, "systrap", false, flag, argv);
	for (int i = 0; argv[i] != NULL; i++)
		(void)puts(argv[i]);
	(void)puts("");
	bundle_config(&spec, &config);
	(void)fwrite(config.data, 1, config.len, stdout);
	buf_free(&config);
	return config.failed || ferror(stdout) ? 1 : 0;
}
