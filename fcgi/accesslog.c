/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/accesslog.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fcgi/exchange.h"
#include "fcgi/text.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/timestamp.h"

#define PATH_SHOWN 256u /* bytes of a path */
#define TENANT_SHOWN 12 /* hexadecimal digits of a key's hash */

void accesslog_init(struct accesslog *log)
{
	log->fd = -1;
}

int accesslog_open(struct accesslog *log, const char *path, struct err *e)
{
	int fd;

	if (path[0] == '\0')
		return 0;
	if (strcmp(path, "-") == 0)
		fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	else
		fd = open(path,
		    O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY |
			O_NONBLOCK, /* a FIFO that nobody reads: an error */
		    0640);
	if (fd < 0)
		return err_sys(e, errno, "access_log: %s", path);
	if (log->fd < 0) {
		log->fd = fd;
		return 0;
	}
	/* Writers never see a closed descriptor. */
	if (dup3(fd, log->fd, O_CLOEXEC) < 0) {
		int code = errno;

		(void)close(fd);
		return err_sys(e, code, "access_log: %s", path);
	}
	(void)close(fd);
	return 0;
}

void accesslog_close(struct accesslog *log)
{
	if (log->fd >= 0)
		(void)close(log->fd);
	log->fd = -1;
}

static void put_text(struct buf *out, const char *s, size_t len)
{
	text_put_decoded(out, (const uint8_t *)s, len, true);
}

/* The client as the rate limit sees it: IPv6 by its /64. */
static void put_remote(struct buf *out, const char *remote)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr a;

	if (inet_pton(AF_INET6, remote, &a) != 1) {
		put_text(out, remote, strnlen(remote, INET6_ADDRSTRLEN));
		return;
	}
	if (IN6_IS_ADDR_V4MAPPED(&a)) {
		(void)inet_ntop(AF_INET, &a.s6_addr[12], text, sizeof(text));
		buf_printf(out, "\"%s\"", text);
		return;
	}
	memset(&a.s6_addr[8], 0, 8);
	(void)inet_ntop(AF_INET6, &a, text, sizeof(text));
	buf_printf(out, "\"%s/64\"", text);
}

static void put_time(struct buf *out)
{
	char text[TIMESTAMP_SIZE];

	timestamp(clock_wall_ms(), text);
	buf_printf(out, "\"%s\"", text);
}

static void put_flags(struct buf *out, const struct exchange *x)
{
	const struct {
		bool set;
		const char *word;
	} flags[] = {
	    {x->streamed, "stream"},
	    {x->timed_out, "timedOut"},
	    {x->oom_killed, "oomKilled"},
	    {x->truncated, "truncated"},
	    {x->out->gone, "clientGone"},
	};
	bool first = true;

	buf_puts(out, ",\"flags\":[");
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (!flags[i].set)
			continue;
		buf_printf(out, "%s\"%s\"", first ? "" : ",", flags[i].word);
		first = false;
	}
	buf_putc(out, ']');
}

static void put_line(struct buf *out, const struct exchange *x)
{
	const struct uri *uri = &x->req.uri;
	uint64_t us = clock_us() - x->begun_us;

	buf_puts(out, "{\"time\":");
	put_time(out);
	buf_printf(out, ",\"id\":\"%s\",\"remote\":", x->id);
	put_remote(out, x->req.remote_addr);
	buf_puts(out, ",\"method\":");
	put_text(out, x->req.method_text, strnlen(x->req.method_text, 16));
	buf_puts(out, ",\"path\":");
	put_text(out, uri->path,
	    uri->path_len < PATH_SHOWN ? uri->path_len : PATH_SHOWN);
	buf_printf(out,
	    ",\"status\":%d,\"bytes\":%llu,\"durationMs\":%llu.%03llu",
	    x->status != 0 ? x->status : err_kind_status(ERR_CLIENT_GONE),
	    (unsigned long long)x->out->bytes, (unsigned long long)us / 1000,
	    (unsigned long long)us % 1000);
	if (x->tenant.name[0] != '\0')
		buf_printf(
		    out, ",\"tenant\":\"%.*s\"", TENANT_SHOWN, x->tenant.name);
	if (x->language[0] != '\0') {
		buf_puts(out, ",\"language\":");
		put_text(out, x->language, strlen(x->language));
	}
	if (x->ran)
		buf_printf(out, ",\"exitCode\":%u", x->exit_code);
	put_flags(out, x);
	buf_puts(out, "}\n");
}

void accesslog_write(const struct accesslog *log, const struct exchange *x)
{
	cleanup_buf struct buf line = {0};
	ssize_t n;

	if (log->fd < 0)
		return;
	put_line(&line, x);
	if (line.failed)
		return;
	do
		n = write(log->fd, line.data, line.len);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		log_error("access_log: %s", strerror(errno));
}
