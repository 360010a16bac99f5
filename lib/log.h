/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_LOG_H
#define ISOBOX_LOG_H

/*
 * One line per event on standard error:
 *   2026-01-02T03:04:05.678Z LEVEL program[pid]: message
 * A line is written by one write(2), so lines of several processes and threads
 * do not mix. Control bytes in the message are escaped (\n, \x1b): a peer
 * cannot forge a line.
 */
enum log_level {
	LOG_LVL_ERROR,
	LOG_LVL_WARN,
	LOG_LVL_INFO,
	LOG_LVL_DEBUG
};

/* Before the first thread. program must outlive all logging. */
void log_init(const char *program, enum log_level level);

/* Accepts error, warn, info, debug; returns -1 for any other word. */
int log_level_parse(const char *word);

void log_at(enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_LVL_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_LVL_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_LVL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LVL_DEBUG, __VA_ARGS__)

/* "fatal: ..." and exit(1). Only before a main loop and in a child before exec. */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
