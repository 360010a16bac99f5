/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_HANDLERS_H
#define ISOBOX_FCGI_HANDLERS_H

#include <stdbool.h>

struct app;
struct exchange;

/* One for each resource, in h_*.c. Each answers the request before it returns,
 * unless the client is gone. */
void h_execute(struct exchange *x);
void h_files_delete(struct exchange *x);
void h_files_get(struct exchange *x);
void h_files_put(struct exchange *x);
void h_fork(struct exchange *x);
void h_healthz(struct exchange *x);
/* Whether it has nobody to ask: then it may be called in the event loop. */
bool health_is_known(const struct app *app);
void h_interrupt(struct exchange *x);
void h_llms(struct exchange *x);
void h_memory_delete(struct exchange *x);
void h_memory_get(struct exchange *x);
void h_memory_list(struct exchange *x);
void h_memory_put(struct exchange *x);
void h_metrics(struct exchange *x);
void h_openapi(struct exchange *x);
void h_readyz(struct exchange *x);
void h_runtimes(struct exchange *x);
void h_session_delete(struct exchange *x);
void h_session_get(struct exchange *x);
void h_sessions_post(struct exchange *x);
void h_step(struct exchange *x);
void h_volume_delete(struct exchange *x);
void h_volume_get(struct exchange *x);
void h_volumes_get(struct exchange *x);
void h_volumes_post(struct exchange *x);

#endif
