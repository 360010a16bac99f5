/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/session_json.h"

#include <inttypes.h>
#include <time.h>

#include "fcgi/result.h"
#include "fcgi/text.h"
#include "lib/json.h"

void session_put_time(struct buf *out, int64_t ms)
{
	int64_t part = ms % 1000 < 0 ? ms % 1000 + 1000 : ms % 1000;
	time_t seconds = (time_t)((ms - part) / 1000);
	struct tm tm;
	char text[32];

	if (gmtime_r(&seconds, &tm) == NULL || tm.tm_year < -900 ||
	    tm.tm_year > 8099 ||
	    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm) == 0)
		buf_puts(out, "null"); /* no year of four digits */
	else
		buf_printf(out, "\"%s.%03dZ\"", text, (int)part);
}

void session_put_facts(
    struct buf *out, const struct store_session *s, const char *token)
{
	buf_printf(out, "{\"id\":\"%s\",", s->id);
	if (token != NULL)
		buf_printf(out, "\"token\":\"%s\",", token);
	buf_puts(out, "\"runtime\":");
	json_put_cstr(out, s->runtime);
	buf_puts(out, ",\"version\":");
	json_put_cstr(out, s->version);
	buf_printf(out, ",\"type\":\"%s\",\"createdAt\":",
	    s->type == STORE_SESSION_KERNEL ? "kernel" : "filesystem");
	session_put_time(out, s->created_ms);
	buf_puts(out, ",\"lastUsedAt\":");
	session_put_time(out, s->used_ms);
	buf_puts(out, ",\"expiresAt\":");
	session_put_time(out, s->expires_ms);
	buf_printf(out, ",\"ttlSec\":%" PRIu32 ",\"volumeId\":", s->ttl_sec);
	if (s->volume[0] != '\0')
		buf_printf(out, "\"%s\"", s->volume);
	else
		buf_puts(out, "null");
}

static const char *word(bool b)
{
	return b ? "true" : "false";
}

void session_put_kernel(struct buf *out, const struct store_session *s,
    const struct kernel_info *info)
{
	buf_printf(out,
	    ",\"kernel\":{\"state\":\"%s\",\"steps\":%" PRIu64
	    ",\"network\":%s,\"memoryBytes\":",
	    kernel_state_word(info->state), info->steps, word(info->network));
	if (info->memory_bytes >= 0)
		buf_printf(out, "%" PRId64, info->memory_bytes);
	else
		buf_puts(out, "null");
	buf_printf(
	    out, ",\"checkpointBytes\":%" PRIu64, info->checkpoint_bytes);
	if (info->reason[0] != '\0') {
		buf_puts(out, ",\"reason\":");
		text_put_reason(out, info->reason);
	}
	buf_putc(out, '}');
	if (s->network && !info->network && info->state != KERNEL_DEAD)
		buf_puts(out, ",\"warning\":\"" RESULT_NETWORK_OFF "\"");
}
