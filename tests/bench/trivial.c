/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trivial.c: the least that a FastCGI program with libfcgi can do, to compare
 * isobox.fcgi with. As many threads, each in FCGX_Accept_r() on a socket that it
 * inherits as descriptor 0, and one constant answer of the size of /healthz.
 */
#include <fcgiapp.h>
#include <pthread.h>
#include <stdlib.h>

#define THREADS 64

static void *serve(void *unused)
{
	FCGX_Request r;

	(void)unused;
	if (FCGX_InitRequest(&r, 0, 0) != 0)
		return NULL;
	while (FCGX_Accept_r(&r) == 0) {
		(void)FCGX_PutS("Content-Type: application/json\r\n\r\n"
				"{\"status\":\"ok\",\"version\":\"0.0.0\"}\n",
		    r.out);
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
