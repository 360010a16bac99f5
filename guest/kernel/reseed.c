/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library for node.cjs to load after a restore. node does not let JavaScript
 * ask OpenSSL, which it contains and exports, for a new seed; and until it takes
 * one, all that were restored from one checkpoint draw the same keys.
 */
extern int RAND_poll(void);

__attribute__((constructor)) static void reseed(void)
{
	(void)RAND_poll();
}
