/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Macros where the analyzer looks. */
#undef err_set
#undef err_sys
#undef err_wrap

static const struct {
	const char *word;
	int status;
} kinds[ERR_KIND_COUNT] = {
    [ERR_INTERNAL] = {"internal_error", 500},
    [ERR_INVALID_JSON] = {"invalid_json", 400},
    [ERR_INVALID_REQUEST] = {"invalid_request", 400},
    [ERR_INVALID_FILE] = {"invalid_file", 400},
    [ERR_LANGUAGE_REQUIRED] = {"language_required", 400},
    [ERR_UNKNOWN_LANGUAGE] = {"unknown_language", 400},
    [ERR_NO_SOURCE] = {"no_source", 400},
    [ERR_UNAUTHORIZED] = {"unauthorized", 401},
    [ERR_NOT_FOUND] = {"not_found", 404},
    [ERR_METHOD_NOT_ALLOWED] = {"method_not_allowed", 405},
    [ERR_RATE_LIMITED] = {"rate_limited", 429},
    [ERR_CAPACITY] = {"capacity", 429},
    [ERR_SANDBOX_FAILED] = {"sandbox_failed", 503},
    /* Only ever logged; the number is the one that web servers log. */
    [ERR_CLIENT_GONE] = {"client_gone", 499},
    [ERR_RUNTIME_REQUIRED] = {"runtime_required", 400},
    [ERR_KERNEL_UNSUPPORTED] = {"kernel_unsupported", 400},
    [ERR_INVALID_PATH] = {"invalid_path", 400},
    [ERR_INVALID_SESSION_TOKEN] = {"invalid_session_token", 401},
    [ERR_SESSION_NOT_FOUND] = {"session_not_found", 404},
    [ERR_VOLUME_NOT_FOUND] = {"volume_not_found", 404},
    [ERR_VOLUME_BUSY] = {"volume_busy", 409},
    [ERR_PRECONDITION_FAILED] = {"precondition_failed", 412},
    [ERR_TOO_LARGE] = {"too_large", 413},
    [ERR_VALUE_TOO_LARGE] = {"value_too_large", 413},
    [ERR_QUOTA_EXCEEDED] = {"quota_exceeded", 413},
    [ERR_RANGE_NOT_SATISFIABLE] = {"range_not_satisfiable", 416},
    [ERR_SESSION_BUSY] = {"session_busy", 429},
    [ERR_TOO_MANY_SESSIONS] = {"too_many_sessions", 429},
    [ERR_TOO_MANY_VOLUMES] = {"too_many_volumes", 429},
    [ERR_STORAGE_FULL] = {"storage_full", 507},
    [ERR_STORAGE_FAILED] = {"storage_failed", 503},
    [ERR_KERNEL_DEAD] = {"kernel_dead", 409},
    [ERR_TOO_MANY_KERNELS] = {"too_many_kernels", 429},
};

_Static_assert(sizeof(kinds) / sizeof(kinds[0]) == ERR_KIND_COUNT,
    "each error kind has a word and a status");

static int result(const struct err *e)
{
	return e->code > 0 ? -e->code : -EINVAL;
}

/*
 * Appends text to msg, which holds len bytes and is size bytes long. What does
 * not fit is cut, never in the middle of a character: the message ends up in
 * JSON. Returns the new length.
 */
static size_t append(char *msg, size_t size, size_t len, const char *text)
{
	size_t n = strnlen(text, size - 1 - len);

	if (text[n] != '\0')
		while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
			n--;
	memcpy(msg + len, text, n);
	msg[len + n] = '\0';
	return len + n;
}

/*
 * The arguments may point into e->msg: format aside, copy after. The text is one
 * byte longer than a message, so that append() sees what it cuts.
 */
#define TEXT_SIZE (sizeof(((struct err *)NULL)->msg) + 4)

int err_set(struct err *e, enum err_kind kind, int code, const char *fmt, ...)
{
	char text[TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	e->code = code;
	e->kind = kind;
	(void)append(e->msg, sizeof(e->msg), 0, text);
	return result(e);
}

int err_sys(struct err *e, int code, const char *fmt, ...)
{
	char text[TEXT_SIZE];
	va_list ap;
	size_t len;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	e->code = code;
	e->kind = ERR_INTERNAL;
	len = append(e->msg, sizeof(e->msg), 0, text);
	len = append(e->msg, sizeof(e->msg), len, ": ");
	(void)append(e->msg, sizeof(e->msg), len, strerror(code));
	return result(e);
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char text[TEXT_SIZE];
	char old[sizeof(e->msg)];
	va_list ap;
	size_t len;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	memcpy(old, e->msg, sizeof(old));
	len = append(e->msg, sizeof(e->msg), 0, text);
	len = append(e->msg, sizeof(e->msg), len, ": ");
	(void)append(e->msg, sizeof(e->msg), len, old);
	return result(e);
}

const char *err_kind_word(enum err_kind kind)
{
	return kinds[kind < ERR_KIND_COUNT ? kind : ERR_INTERNAL].word;
}

int err_kind_status(enum err_kind kind)
{
	return kinds[kind < ERR_KIND_COUNT ? kind : ERR_INTERNAL].status;
}
