/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/egress/choose.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "runner/egress/egress.h"
#include "runner/egress/version.h"

/* The trial's parts have their own, shorter ends. */
#define TRIALS 3u
#define TRIAL_MS (3 * EGRESS_OPEN_MS + EGRESS_TRIAL_MS)

/* What the process that tries has found. */
struct finding {
	int code; /* 0: it works */
	char why[sizeof(((struct err *)0)->msg)];
};

static _Noreturn void try_and_tell(const struct egress_policy *p, int out)
{
	struct finding f = {0};
	struct err e;
	uint64_t us;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (egress_try(p, &us, &e) < 0) {
		f.code = e.code > 0 ? e.code : EINVAL;
		(void)snprintf(f.why, sizeof(f.why), "%s", e.msg);
	}
	_exit(write(out, &f, sizeof(f)) == (ssize_t)sizeof(f) ? 0 : 1);
}

static int hear(int fd, struct err *e)
{
	const uint64_t until = clock_ms() + TRIAL_MS;
	struct pollfd p = {fd, POLLIN, 0};
	struct finding f;
	int r;

	do
		r = poll(&p, 1, clock_left_ms(until));
	while (r < 0 && errno == EINTR);
	if (r <= 0 || read(fd, &f, sizeof(f)) != (ssize_t)sizeof(f))
		return err_set(e, ERR_INTERNAL, r == 0 ? ETIMEDOUT : EPIPE,
		    "the trial did not come to an end");
	return f.code == 0 ? 0 : err_set(e, ERR_INTERNAL, f.code, "%s", f.why);
}

/* egress_try() in a process of its own, which it moves elsewhere. */
static int try_it(const struct egress_policy *p, struct err *e)
{
	cleanup_fd int out = -1;
	int fds[2], rc;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return err_sys(e, errno, "pipe");
	out = fds[0];
	pid = fork();
	if (pid == 0)
		try_and_tell(p, fds[1]);
	(void)close(fds[1]);
	if (pid < 0)
		return err_sys(e, errno, "fork");
	rc = hear(out, e);
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return rc;
}

static int check_age(
    const struct carrier_driver *driver, const char *path, struct err *e)
{
	const uint32_t since = driver->since;
	uint32_t day;
	int rc;

	if (since == 0)
		return 0;
	if ((rc = version_ask(driver->name, path, &day, e)) < 0)
		return rc;
	if (day < since)
		return err_set(e, ERR_INTERNAL, ENOSYS,
		    "%s of %u-%02u-%02u is too old, it must be of %u-%02u-%02u "
		    "or later",
		    path, day / 10000, day / 100 % 100, day % 100,
		    since / 10000, since / 100 % 100, since % 100);
	return 0;
}

static void say(struct egress_policy *p, const char *why)
{
	(void)snprintf(p->choice, sizeof(p->choice), "%s%s%s", p->driver->name,
	    *why != '\0' ? ", " : "", why);
}

static void refuse(struct egress_policy *p, const struct err *e)
{
	p->refused = *e;
	if (p->refused.code <= 0)
		p->refused.code = EINVAL;
	say(p, "which will not do");
}

/* No other is left: what is wrong for good closes. On a host that is very busy a
 * trial may be late: wrong is what is so each time. */
static void settle_pasta(
    struct egress_policy *p, const struct config *config, const char *why)
{
	struct err e;
	int rc;

	egress_policy_use(p, config, &carrier_pasta);
	say(p, why);
	rc = check_age(p->driver, p->carrier, &e);
	for (unsigned i = 0; rc == 0 && i < TRIALS; i++) {
		if (try_it(p, &e) != -EREMOTEIO)
			return;
	}
	refuse(p, &e);
}

static void settle_auto(struct egress_policy *p, const struct config *config)
{
	char why[320];
	struct err slirp, pasta;
	int rc;

	egress_policy_use(p, config, &carrier_slirp4netns);
	say(p, "");
	rc = check_age(&carrier_pasta, config->pasta, &pasta);
	if (access(p->carrier, X_OK) != 0) {
		(void)snprintf(why, sizeof(why), "since %s: %s", p->carrier,
		    strerror(errno));
		if (rc == 0)
			settle_pasta(p, config, why);
		return;
	}
	if (rc < 0 || try_it(p, &slirp) == 0)
		return;
	egress_policy_use(p, config, &carrier_pasta);
	if (try_it(p, &pasta) == 0) {
		(void)snprintf(
		    why, sizeof(why), "since slirp4netns fails: %s", slirp.msg);
		say(p, why);
		return;
	}
	egress_policy_use(p, config, &carrier_slirp4netns);
	say(p, "as pasta fails, too");
}

void egress_choose(struct egress_policy *p, const struct config *config)
{
	const char *wish = config->egress_driver;

	p->refused = (struct err){0};
	if (strcmp(wish, carrier_pasta.name) == 0) {
		settle_pasta(p, config, "as configured");
	} else if (strcmp(wish, carrier_slirp4netns.name) == 0) {
		egress_policy_use(p, config, &carrier_slirp4netns);
		say(p, "as configured");
	} else {
		settle_auto(p, config);
	}
}
