/* SPDX-License-Identifier: Apache-2.0 */
/* `isobox-runner --check-egress`: all of it but the sandbox. */
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "runner/egress/egress.h"

/* A process that has only the namespaces of a sandbox. */
static pid_t clone_dummy(void)
{
	struct clone_args args = {
	    .flags = CLONE_NEWUSER | CLONE_NEWNET, .exit_signal = SIGCHLD};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		(void)pause();
}

int egress_try(
    const struct egress_policy *policy, uint64_t *ret_us, struct err *e)
{
	const uint64_t begun_us = clock_us();
	static const struct egress_names names;
	struct egress eg = EGRESS_NONE;
	pid_t dummy;
	int rc = egress_open(&eg, policy, &names, NULL, e);

	if (rc < 0)
		return rc;
	dummy = clone_dummy();
	if (dummy < 0) {
		rc = err_sys(e, errno, "the namespaces of a sandbox");
	} else {
		rc = egress_attach(&eg, dummy, e);
		if (rc == 0)
			*ret_us = clock_us() - begun_us;
		(void)kill(dummy, SIGKILL);
		(void)waitpid(dummy, NULL, 0);
	}
	if (rc == 0)
		rc = egress_check(&eg, e);
	egress_close(&eg);
	return rc;
}
