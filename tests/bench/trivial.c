/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trivial.c: the least that a FastCGI program with libfcgi can do, to compare
 * isobox.fcgi with. As many threads, each in FCGX_Accept_r() on a socket that it
 * inherits as descriptor 0, and constant answers: one of the size of /healthz, and
 * for /v1/big one of 16 MiB. What is sent to it is read and forgotten.
 */
#include <fcgiapp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 64
#define BIG (16 << 20)
#define STEP (64 * 1024)

static const char zeros[STEP];

static void drop_input(FCGX_Request *r)
{
	char data[STEP];

	while (FCGX_GetStr(data, sizeof(data), r->in) > 0)
		;
}

static void send_big(FCGX_Request *r)
{
	(void)FCGX_FPrintF(r->out,
	    "Content-Type: application/octet-stream\r\n"
	    "Content-Length: %d\r\n\r\n",
	    BIG);
	for (int i = 0; i < BIG / STEP; i++)
		(void)FCGX_PutStr(zeros, STEP, r->out);
}

static void answer(FCGX_Request *r)
{
	const char *method = FCGX_GetParam("REQUEST_METHOD", r->envp);
	const char *target = FCGX_GetParam("REQUEST_URI", r->envp);

	if (method != NULL && strcmp(method, "PUT") == 0)
		drop_input(r);
	else if (target != NULL && strcmp(target, "/v1/big") == 0) {
		send_big(r);
		return;
	}
	(void)FCGX_PutS("Content-Type: application/json\r\n\r\n"
			"{\"status\":\"ok\",\"version\":\"0.0.0\"}\n",
	    r->out);
}

static void *serve(void *unused)
{
	FCGX_Request r;

	(void)unused;
	if (FCGX_InitRequest(&r, 0, 0) != 0)
		return NULL;
	while (FCGX_Accept_r(&r) == 0) {
		answer(&r);
		FCGX_Finish_r(&r);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];

	if (FCGX_Init() != 0)
		return EXIT_FAILURE;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, serve, NULL) != 0)
			return EXIT_FAILURE;
	for (int i = 0; i < THREADS; i++)
		(void)pthread_join(t[i], NULL);
	return EXIT_SUCCESS;
}
