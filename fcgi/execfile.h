/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_EXECFILE_H
#define ISOBOX_FCGI_EXECFILE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/job.h"
#include "lib/json.h"

/*
 * One element of `files`, number index: its name checked, its content decoded.
 * *ret borrows from v, or from *ret_decoded, which the caller frees (NULL when
 * the content came as it is).
 */
int execfile_take(struct json_object *v, size_t index, struct job_file *ret,
    uint8_t **ret_decoded, struct err *e);

#endif
