/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/utf8.h"

/* A write of up to PIPE_BUF bytes to a pipe is atomic (pipe(7)). */
#define LINE_SIZE 4096u
#define TEXT_SIZE 2048u

static const char *const level_words[] = {
    [LOG_LVL_ERROR] = "error",
    [LOG_LVL_WARN] = "warn",
    [LOG_LVL_INFO] = "info",
    [LOG_LVL_DEBUG] = "debug",
};

static const char *const level_marks[] = {
    [LOG_LVL_ERROR] = "ERROR",
    [LOG_LVL_WARN] = "WARN",
    [LOG_LVL_INFO] = "INFO",
    [LOG_LVL_DEBUG] = "DEBUG",
};

static struct {
	const char *program;
	enum log_level level;
} log_state = {"isobox", LOG_LVL_INFO};

void log_init(const char *program, enum log_level level)
{
	log_state.program = program;
	log_state.level = level;
}

int log_level_parse(const char *word)
{
	for (int i = LOG_LVL_ERROR; i <= LOG_LVL_DEBUG; i++)
		if (strcmp(word, level_words[i]) == 0)
			return i;
	return -1;
}

/*
 * Whether the byte at s[i] may stand in a line as it is. Beyond ASCII only
 * well-formed text may, and no C1 control (U+0080 to U+009F, c2 80 to c2 9f):
 * terminals obey these.
 */
static bool is_plain(const uint8_t *s, size_t i, bool well_formed)
{
	if (s[i] < 0x80)
		return s[i] >= 0x20 && s[i] != 0x7f;
	if (s[i] == 0xc2)
		return well_formed && s[i + 1] >= 0xa0;
	if (s[i] < 0xa0 && i > 0 && s[i - 1] == 0xc2)
		return false;
	return well_formed;
}

/* Writes text into out with its control bytes escaped; returns the length. What
 * does not fit is left out and "..." says so. */
static size_t escape(char *out, size_t size, const char *text)
{
	static const char hex[] = "0123456789abcdef";
	const uint8_t *s = (const uint8_t *)text;
	bool well_formed = utf8_valid(s, strlen(text), NULL);
	size_t n = 0;

	for (size_t i = 0; s[i] != '\0'; i++) {
		if (n + 4 + 3 > size) { /* one escape, the dots */
			memset(out + n, '.', 3);
			return n + 3;
		}
		if (is_plain(s, i, well_formed)) {
			out[n++] = (char)s[i];
			continue;
		}
		out[n++] = '\\';
		if (s[i] == '\n') {
			out[n++] = 'n';
			continue;
		}
		out[n++] = 'x';
		out[n++] = hex[s[i] >> 4];
		out[n++] = hex[s[i] & 0xf];
	}
	return n;
}

/* "2026-01-02T03:04:05.678Z LEVEL program[pid]: "; returns its length. */
static size_t prefix(char *out, size_t size, enum log_level level)
{
	struct timespec now;
	struct tm tm;
	char stamp[32];
	int n;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	if (gmtime_r(&now.tv_sec, &tm) == NULL ||
	    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm) == 0)
		stamp[0] = '\0';
	n = snprintf(out, size, "%s.%03ldZ %s %.64s[%ld]: ", stamp,
	    now.tv_nsec / 1000000, level_marks[level], log_state.program,
	    (long)getpid());
	return n < 0 ? 0 : (size_t)n;
}

static void log_text(enum log_level level, const char *text)
{
	char line[LINE_SIZE];
	size_t n = prefix(line, sizeof(line), level);
	ssize_t written;

	n += escape(line + n, sizeof(line) - n - 1, text);
	line[n++] = '\n';
	do
		written = write(STDERR_FILENO, line, n);
	while (written < 0 && errno == EINTR);
}

__attribute__((format(printf, 2, 0))) static void log_va(
    enum log_level level, const char *fmt, va_list ap)
{
	char text[TEXT_SIZE];
	int n = vsnprintf(text, sizeof(text), fmt, ap);

	if (n < 0)
		(void)snprintf(text, sizeof(text), "(bad format: %s)", fmt);
	else if ((size_t)n >= sizeof(text))
		memset(text + sizeof(text) - 4, '.', 3);
	log_text(level, text);
}

void log_at(enum log_level level, const char *fmt, ...)
{
	int saved = errno; /* a caller may log before it looks */
	va_list ap;

	if (level > log_state.level)
		return;
	va_start(ap, fmt);
	log_va(level, fmt, ap);
	va_end(ap);
	errno = saved;
}

void die(const char *fmt, ...)
{
	char text[TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	log_at(LOG_LVL_ERROR, "fatal: %s", text);
	exit(1);
}
