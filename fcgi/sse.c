/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/sse.h"

#include <string.h>

#include "fcgi/text.h"
#include "lib/clock.h"

/* Three writes in 60 ms, 360 ms from the first to the next first: what is known
 * late leaves little time to end the run. */
#define BURST_EVERY_MS 300u
#define BURST_GAP_MS 30u
#define BURST_SIZE 3u

#define COMMENT ": \n\n"

static const char *const stream_names[] = {"stdout", "stderr"};

void sse_begin(struct sse *s, struct out *out, bool base64)
{
	memset(s, 0, sizeof(*s));
	s->out = out;
	s->base64 = base64;
	s->beat_ms = clock_ms() + BURST_EVERY_MS;
	(void)out_write(out, COMMENT, sizeof(COMMENT) - 1);
	(void)out_flush(out);
}

void sse_done(struct sse *s)
{
	buf_free(&s->pending);
	buf_free(&s->event);
}

static void write_event(struct sse *s)
{
	if (s->event.failed || s->pending.failed)
		s->out->gone = true; /* out of memory: nothing is left out */
	else
		(void)out_write(s->out, s->event.data, s->event.len);
}

static void write_pending(struct sse *s)
{
	if (s->pending.len == 0 && !s->pending.failed)
		return;
	buf_clear(&s->event);
	buf_printf(
	    &s->event, "event: %s\ndata: {\"chunk\":", stream_names[s->which]);
	if (s->base64)
		text_put_base64(&s->event, s->pending.data, s->pending.len);
	else
		text_put_utf8(&s->event, s->pending.data, s->pending.len);
	buf_puts(&s->event, "}\n\n");
	write_event(s);
	buf_clear(&s->pending);
}

/* Makes pending one of that stream. */
static void turn_to(struct sse *s, enum stream which)
{
	if (s->which != which)
		write_pending(s);
	s->which = which;
}

void sse_output(
    struct sse *s, enum stream which, const uint8_t *data, size_t len)
{
	turn_to(s, which);
	if (s->base64)
		buf_put(&s->pending, data, len);
	else
		utf8_stream_put(&s->utf8[which], data, len, &s->pending);
}

void sse_flush(struct sse *s)
{
	if (s->pending.len == 0 && !s->pending.failed)
		return;
	write_pending(s);
	(void)out_flush(s->out);
}

void sse_output_end(struct sse *s, enum stream which, bool cut)
{
	turn_to(s, which);
	utf8_stream_end(&s->utf8[which], cut, &s->pending);
}

void sse_event(struct sse *s, const char *name, const void *data, size_t len)
{
	write_pending(s);
	buf_clear(&s->event);
	buf_printf(&s->event, "event: %s\ndata: ", name);
	buf_put(&s->event, data, len);
	buf_puts(&s->event, "\n\n");
	write_event(s);
	(void)out_flush(s->out);
}

void sse_comment(struct sse *s, const char *text)
{
	write_pending(s);
	buf_clear(&s->event);
	buf_printf(&s->event, ": %s\n\n", text);
	write_event(s);
}

void sse_beat(struct sse *s)
{
	if (clock_ms() < s->beat_ms)
		return;
	write_pending(s);
	(void)out_write(s->out, COMMENT, sizeof(COMMENT) - 1);
	(void)out_flush(s->out);
	s->beat = (s->beat + 1) % BURST_SIZE;
	s->beat_ms =
	    clock_ms() + (s->beat == 0 ? BURST_EVERY_MS : BURST_GAP_MS);
}
