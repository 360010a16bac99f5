/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_PAYLOAD_H
#define ISOBOX_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/job.h"
#include "lib/proto.h"

/* The parts that several messages between our processes are made of, and that
 * their decoders share (lib/job.h, lib/kproto.h). */

void put_blob(struct buf *b, const struct blob *s);
void put_blobs(struct buf *b, const struct blob *s, size_t n);
void put_files(struct buf *b, const struct job_file *f, size_t n);

struct blob get_blob(struct reader *r);

/*
 * Lists: at most max strings, none with NUL in it; at most LIMIT_FILES files
 * with proper names. The caller frees *ret, also when a failure is returned;
 * its items point into the payload. Nothing is returned of an r that is bad.
 */
int get_strings(struct reader *r, size_t max, const char *what,
    struct blob **ret, size_t *ret_n, struct err *e);
int get_files(struct reader *r, const char *what, struct job_file **ret,
    size_t *ret_n, struct err *e);

bool blob_has_nul(const struct blob *s);

/* [A-Za-z0-9_-]{1,64}: a session, a volume, a request. */
bool blob_is_id(const struct blob *s);

/* A name from the registry: short, printable ASCII without spaces. */
bool blob_is_word(const struct blob *s);

/* A string into a zeroed array of size bytes, one of them for its end. */
void get_text(struct reader *r, char *ret, size_t size);

/* -EPROTO and "what: why". */
int payload_refuse(struct err *e, const char *what, const char *why);

/* The end of each decoder: no byte left, none lacking. */
int payload_finish(const struct reader *r, const char *what, struct err *e);

/* A working directory, argv and environment that execve(2) can be given. */
int payload_check_program(const char *what, const struct blob *cwd,
    const struct blob *run, size_t run_count, const struct blob *env,
    size_t env_count, struct err *e);

/* Names of modules to preload. */
int payload_check_modules(
    const char *what, const struct blob *names, size_t n, struct err *e);

#endif
