/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_EXECREQ_H
#define ISOBOX_FCGI_EXECREQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fcgi/execnet.h"
#include "lib/err.h"
#include "lib/job.h"
#include "lib/json.h"
#include "lib/limits.h"
#include "lib/registry.h"

/*
 * The body of POST /execute or of a session's step, checked, as a job for the
 * runner. Everything that the job points to lives in `root` and in `decoded`.
 */
struct execreq {
	struct json_object *root;
	uint8_t *decoded[LIMIT_FILES]; /* contents that came encoded */
	struct job_file files[LIMIT_FILES];
	struct blob args[LIMIT_ARGS];
	struct execnet network;
	struct job job; /* its arrays are those above */
	const struct runtime *runtime; /* the registry's */
	bool base64; /* outputEncoding */
	uint32_t wall_max_ms; /* of a kernel's step; else 0 */
};

/*
 * Parses and checks in the order of the API's reference: JSON, language, the
 * other members, then whether registry has the runtime. The caller calls
 * execreq_done() whatever comes out. registry must outlive *q.
 */
int execreq_parse(struct execreq *q, const uint8_t *body, size_t len,
    const struct registry *registry, struct err *e);

/* The same for a step of a session, whose runtime is known: `language` and
 * `version` are members like any other that nobody knows. */
int execreq_parse_step(struct execreq *q, const uint8_t *body, size_t len,
    const struct runtime *runtime, struct err *e);

/* The same for a step in a live kernel: with `display`, without args, with up to
 * wall_max_ms of wall time. What the kernel has for its life (network, memory)
 * is checked and left aside. */
int execreq_parse_kernel(struct execreq *q, const uint8_t *body, size_t len,
    const struct runtime *runtime, uint32_t wall_max_ms, struct err *e);

void execreq_done(struct execreq *q);

#endif
