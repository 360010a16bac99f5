/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_FCGI_CGI_H
#define ISOBOX_FCGI_CGI_H

#include "fcgi/app.h"

/* CGI 1.1 (RFC 3875): serves the one request that the environment and standard
 * input describe, to standard output. */
void cgi_serve(struct app *app);

/* After the answer: the web server sees its end, though the program goes on. */
void cgi_let_go(void);

/* The answer when there is no service: its configuration is broken. */
void cgi_fail(void);

#endif
