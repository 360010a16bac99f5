/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/out.h"

#include <poll.h>

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
