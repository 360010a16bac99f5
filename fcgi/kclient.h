/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_KCLIENT_H
#define ISOBOX_FCGI_KCLIENT_H

#include "lib/err.h"
#include "lib/kernelproto.h"

struct exchange;

/*
 * Asks the runner about a live kernel (lib/kernelproto.h) and waits for its
 * answer, also when the client leaves: once begun it is done. request_id of q is
 * filled in. Errors are those of the operation, with x->retry_after_s; the
 * runner's silence is ERR_SANDBOX_FAILED.
 */
int kclient_ask(struct exchange *x, struct kernel_request *q,
    struct kernel_info *ret, struct err *e);

#endif
