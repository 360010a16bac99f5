/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_HANDLERS_H
#define ISOBOX_FCGI_HANDLERS_H

struct exchange;

/* One for each resource, in h_*.c. Each answers the request before it returns,
 * unless the client is gone. */
void h_execute(struct exchange *x);
void h_healthz(struct exchange *x);
void h_llms(struct exchange *x);
void h_metrics(struct exchange *x);
void h_openapi(struct exchange *x);
void h_readyz(struct exchange *x);
void h_runtimes(struct exchange *x);

#endif
