/* SPDX-License-Identifier: Apache-2.0 */
/*
 * isobox-init: PID 1 of a sandbox, the only process that speaks to the
 * supervisor.
 *
 * Theory of operation. serve() is the whole life: boot (boot.c) prepares the
 * sandbox and gives up privileges; READY is sent; a WARM may come, which has an
 * interpreter wait for the job (warm.c); one JOB arrives (control.c). If it is
 * what somebody waits for, that one becomes the program. Otherwise its compile
 * step, if there is one, and its run step are started (child.c,
 * files.c) and looked after (pump.c); EXIT is sent, and init ends, which ends
 * the sandbox. A KERNEL instead of all that is the life of kernel.c. Whatever
 * init cannot do becomes one FAIL frame. Deadlines, caps
 * on memory and the end of processes left over are the supervisor's, from
 * outside: init is trusted no more than the sandbox that it runs in.
 *
 * docs/guest-protocol.md has the frames.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/boot.h"
#include "guest/child.h"
#include "guest/control.h"
#include "guest/files.h"
#include "guest/kernel.h"
#include "guest/pump.h"
#include "guest/strings.h"
#include "guest/warm.h"
#include "lib/cleanup.h"

/* As a shell has them. */
#define EXIT_CANNOT_RUN 126
#define EXIT_NOT_FOUND 127
#define EXIT_SIGNAL 128

struct init {
	struct control control;
	struct guest_job job;
	struct program_pipes pipes;
	struct pump pump;
	struct warm warm;
	char **env;
	char *cwd;
	struct guest_exit exit;
};

/* The program's ends, which init has to let go of: else nobody could tell that
 * the program has closed its input. */
static void close_program_ends(struct program_pipes *p)
{
	(void)close(p->in[PIPE_READ]);
	(void)close(p->out[PIPE_WRITE]);
	(void)close(p->err[PIPE_WRITE]);
}

static int report_not_run(
    struct init *i, const char *name, int why, struct err *e)
{
	char text[512];
	int n;

	/* gVisor says so of an argument of 128 KiB or more, too. */
	if (why == ENAMETOOLONG && strlen(name) <= LIMIT_NAME)
		why = E2BIG;
	n = snprintf(text, sizeof(text), "isobox: cannot run %.400s: %s\n",
	    name, strerror(why));
	i->exit.exit_code = why == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
	return control_send(
	    &i->control, PROTO_GUEST_STDERR, text, (size_t)n, e);
}

/* before_us: the CPU time of the process until it became the program. */
static int wait_for_program(
    struct init *i, pid_t pid, uint64_t before_us, struct err *e)
{
	uint64_t cpu_us;
	int status, rc;

	if ((rc = pump_until_exit(&i->pump, pid, &status, &cpu_us, e)) < 0 ||
	    (rc = pump_drain(&i->pump, e)) < 0)
		return rc;
	i->exit.cpu_us += cpu_us > before_us ? cpu_us - before_us : 0;
	if (WIFSIGNALED(status)) {
		i->exit.signal = (uint32_t)WTERMSIG(status);
		i->exit.exit_code = EXIT_SIGNAL + i->exit.signal;
	} else {
		i->exit.exit_code = (uint32_t)WEXITSTATUS(status);
	}
	return 0;
}

/* What both steps of a job have in common. */
static struct child describe_child(const struct init *i)
{
	return (struct child){
	    .env = i->env,
	    .cwd = i->cwd,
	    .pids = i->job.pids,
	    .file_bytes = i->job.tmpfs_bytes,
	};
}

/* The last program of the sandbox goes. */
static int let_go(struct init *i, struct err *e)
{
	close_program_ends(&i->pipes);
	return boot_drop_privileges(e);
}

static int send_started(struct init *i, struct err *e)
{
	return control_send(&i->control, PROTO_GUEST_STARTED, NULL, 0, e);
}

/* The first step of a job writes its files and is what STARTED tells about. */
static int run_step(
    struct init *i, struct child *c, bool first, bool last, struct err *e)
{
	pid_t pid;
	int why, rc;

	if (first && !i->warm.files_there) {
		c->files = i->job.files;
		c->file_count = i->job.file_count;
		if (i->warm.entry_there)
			c->there = &i->warm.what.entry;
	}
	why = child_start(c, &pid, e);
	if (why < 0)
		return why;
	if ((last && (rc = let_go(i, e)) < 0) ||
	    (first && (rc = send_started(i, e)) < 0))
		return rc;
	return why > 0 ? report_not_run(i, c->argv[0], why, e)
		       : wait_for_program(i, pid, 0, e);
}

/* The first step is a process that waited for it. */
static int run_claimed(struct init *i, const struct warm_claimed *claimed,
    bool last, struct err *e)
{
	int rc;

	if ((last && (rc = let_go(i, e)) < 0) || (rc = send_started(i, e)) < 0)
		return rc;
	i->pump.end_fd = claimed->end_fd;
	i->pump.stat_fd = claimed->stat_fd;
	return wait_for_program(i, claimed->pid, claimed->cpu_us, e);
}

static int start_compiler(struct init *i, struct err *e)
{
	cleanup_strings char **argv =
	    strings_new(i->job.compile, i->job.compile_count);
	struct child c = describe_child(i);
	cleanup_fd int null = child_compiler_fds(&i->pipes, c.fds, e);

	if (null < 0)
		return null;
	if (argv == NULL)
		return err_sys(e, ENOMEM, "cannot start the compile step");
	c.argv = argv;
	c.cwd = FILES_DIR; /* the sources' own, wherever the program works */
	return run_step(i, &c, true, false, e);
}

static int run_compile(
    struct init *i, const struct warm_claimed *claimed, struct err *e)
{
	int rc = claimed->pid > 0 ? run_claimed(i, claimed, false, e)
				  : start_compiler(i, e);

	if (rc < 0)
		return rc;
	i->exit.compile_failed = i->exit.exit_code != 0;
	return i->exit.compile_failed
		   ? 0
		   : pump_end_leftovers(i->pump.signal_fd, e);
}

static int run_program(struct init *i, struct err *e)
{
	cleanup_strings char **argv = strings_new(i->job.run, i->job.run_count);
	struct child c = describe_child(i);

	if (argv == NULL)
		return err_sys(e, ENOMEM, "cannot start the program");
	c.argv = argv;
	c.fds[0] = i->pipes.in[PIPE_READ];
	c.fds[1] = i->pipes.out[PIPE_WRITE];
	c.fds[2] = i->pipes.err[PIPE_WRITE];
	return run_step(i, &c, i->job.compile_count == 0, true, e);
}

static int run_job(struct init *i, struct err *e)
{
	struct warm_claimed claimed;
	int rc = warm_claim(&i->warm, &i->job, &claimed, e);

	if (rc < 0)
		return rc;
	if (claimed.pid > 0 && i->job.compile_count == 0)
		return run_claimed(i, &claimed, true, e);
	i->env = strings_new(i->job.env, i->job.env_count);
	i->cwd = strndup((const char *)i->job.cwd.data, i->job.cwd.len);
	if (i->env == NULL || i->cwd == NULL)
		return err_sys(e, ENOMEM, "cannot take the job");
	if (i->job.compile_count > 0)
		rc = run_compile(i, &claimed, e);
	if (rc == 0 && !i->exit.compile_failed)
		rc = run_program(i, e);
	return rc;
}

static int send_exit(struct init *i, struct err *e)
{
	size_t begun = proto_begin(&i->control.out, PROTO_GUEST_EXIT);

	guest_exit_encode(&i->exit, &i->control.out);
	proto_end(&i->control.out, begun);
	return control_flush(&i->control, e);
}

static int serve_job(struct init *i, enum proto_type type,
    const struct blob *payload, int signal_fd, struct err *e)
{
	int rc;

	if (type != PROTO_GUEST_JOB || control_pending(&i->control))
		return err_set(e, ERR_INTERNAL, EPROTO,
		    "what came is not one job and nothing else");
	rc = guest_job_decode(payload->data, payload->len, &i->job, e);
	if (rc < 0)
		return rc;
	pump_init(&i->pump, &i->control, signal_fd, &i->pipes, &i->job);
	if ((rc = run_job(i, e)) < 0)
		return rc;
	return send_exit(i, e);
}

/* What comes first tells what the sandbox is for. */
static int serve_first(struct init *i, int signal_fd, struct err *e)
{
	enum proto_type type;
	struct blob payload;
	int rc = control_receive(&i->control, &type, &payload, e);

	if (rc == 0 && type == PROTO_GUEST_KERNEL)
		return kernel_serve(
		    &i->control, signal_fd, &i->pipes, &payload, e);
	if (rc == 0 && type == PROTO_GUEST_WARM) {
		if ((rc = warm_start(&i->warm, &payload, e)) < 0)
			return rc;
		rc = control_receive(&i->control, &type, &payload, e);
	}
	return rc < 0 ? rc : serve_job(i, type, &payload, signal_fd, e);
}

static int serve(struct init *i, struct err *e)
{
	int signal_fd, rc;

	if ((rc = boot(&i->pipes, &signal_fd, e)) < 0 ||
	    (rc = control_send(&i->control, PROTO_GUEST_READY, NULL, 0, e)) < 0)
		return rc;
	warm_init(&i->warm, &i->control, &i->pipes, signal_fd);
	return serve_first(i, signal_fd, e);
}

int main(void)
{
	struct init i = {.warm = {.fd = -1}};
	struct err e;
	int rc = serve(&i, &e);

	/* The supervisor gone: nobody is left to be told. */
	if (rc < 0 && rc != -EPIPE)
		control_fail(&i.control, &e);
	strings_free(i.env);
	free(i.cwd);
	guest_job_done(&i.job);
	warm_done(&i.warm);
	control_done(&i.control);
	return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
