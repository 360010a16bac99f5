/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_ERR_H
#define ISOBOX_ERR_H

#include <stdarg.h>

/*
 * The error contract. A function that can fail takes `struct err *e` last and
 * returns >= 0 (or a pointer) on success and a negative errno (or NULL) on
 * failure. Success leaves *e alone; failure sets it whole. A caller that knows
 * more adds it with err_wrap(). The struct lives on the caller's stack.
 */

/* What a client is told; one table in err.c maps it to a word and a status. */
enum err_kind {
	ERR_INTERNAL = 0, /* 500 internal_error: our own mistake */
	ERR_INVALID_JSON, /* 400 */
	ERR_INVALID_REQUEST, /* 400 */
	ERR_INVALID_FILE, /* 400 */
	ERR_LANGUAGE_REQUIRED, /* 400 */
	ERR_UNKNOWN_LANGUAGE, /* 400 */
	ERR_NO_SOURCE, /* 400 */
	ERR_UNAUTHORIZED, /* 401 */
	ERR_NOT_FOUND, /* 404 */
	ERR_METHOD_NOT_ALLOWED, /* 405 */
	ERR_RATE_LIMITED, /* 429, Retry-After */
	ERR_CAPACITY, /* 429, Retry-After */
	ERR_SANDBOX_FAILED, /* 503: the host failed, not the program */
	ERR_CLIENT_GONE, /* never answered: nobody listens */
	ERR_RUNTIME_REQUIRED, /* 400 */
	ERR_KERNEL_UNSUPPORTED, /* 400 */
	ERR_INVALID_PATH, /* 400: a path of a workspace */
	ERR_INVALID_SESSION_TOKEN, /* 401 */
	ERR_SESSION_NOT_FOUND, /* 404 */
	ERR_VOLUME_NOT_FOUND, /* 404 */
	ERR_VOLUME_BUSY, /* 409: a session holds it */
	ERR_PRECONDITION_FAILED, /* 412: If-Match and its kin */
	ERR_TOO_LARGE, /* 413: a body or an archive */
	ERR_VALUE_TOO_LARGE, /* 413: of the memory */
	ERR_QUOTA_EXCEEDED, /* 413 */
	ERR_RANGE_NOT_SATISFIABLE, /* 416 */
	ERR_SESSION_BUSY, /* 429, Retry-After */
	ERR_TOO_MANY_SESSIONS, /* 429, Retry-After */
	ERR_TOO_MANY_VOLUMES, /* 429 */
	ERR_STORAGE_FULL, /* 507 */
	ERR_STORAGE_FAILED, /* 503: the store; Retry-After when it is busy */
	ERR_KERNEL_DEAD, /* 409 */
	ERR_TOO_MANY_KERNELS, /* 429, Retry-After */
	ERR_KIND_COUNT
};

struct err {
	int code; /* errno value, positive; 0 when none fits */
	enum err_kind kind;
	char msg[256]; /* a sentence without a full stop, UTF-8 */
};

/* Sets *e and returns -code (or -EINVAL when code is 0). */
int err_set(struct err *e, enum err_kind kind, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Like err_set() for a failed system call: appends ": strerror(code)". */
int err_sys(struct err *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the message and returns -e->code as before. */
int err_wrap(struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The analyzer of clang sees one file at a time and would follow paths on which
 * these return no error. */
#ifdef __clang_analyzer__
#define err_set(...) ((void)err_set(__VA_ARGS__), -1)
#define err_sys(...) ((void)err_sys(__VA_ARGS__), -1)
#define err_wrap(...) ((void)err_wrap(__VA_ARGS__), -1)
#endif

/* The word in {"error": word}; static storage. */
const char *err_kind_word(enum err_kind kind);

/* The HTTP status of a kind. */
int err_kind_status(enum err_kind kind);

#endif
