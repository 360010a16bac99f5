/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/out.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

bool out_is_gone(struct out *o, short revents)
{
	if ((revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) != 0)
		o->gone = true;
	if (!o->gone && (revents & POLLIN) != 0 && o->aborted != NULL)
		o->gone = o->aborted(o);
	return o->gone;
}

bool out_check_gone(struct out *o)
{
	struct pollfd p = {.fd = o->watch_fd, .events = o->watch_events};

	return poll(&p, 1, 0) > 0 ? out_is_gone(o, p.revents) : o->gone;
}

static ssize_t copy_file(struct out *o, int fd, uint64_t offset, size_t len)
{
	char data[16384];
	size_t want = len < sizeof(data) ? len : sizeof(data);
	ssize_t n;

	do
		n = pread(fd, data, want, (off_t)offset);
	while (n < 0 && errno == EINTR);
	if (n <= 0)
		return -1;
	return o->write(o, data, (size_t)n) < 0 ? -1 : n;
}

size_t out_send_file(struct out *o, int fd, uint64_t offset, size_t len)
{
	size_t sent = 0;

	if (o->send_file != NULL)
		(void)out_flush(o);
	while (sent < len && !o->gone) {
		ssize_t n = o->send_file != NULL
				? o->send_file(o, fd, offset + sent, len - sent)
				: copy_file(o, fd, offset + sent, len - sent);

		if (n < 0) {
			o->gone = true;
		} else {
			sent += (size_t)n;
			o->bytes += (uint64_t)n;
		}
	}
	return sent;
}
