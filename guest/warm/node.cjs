// SPDX-License-Identifier: Apache-2.0
/*
 * What Node does to wait for a program: a function's body, called by the hook in
 * the image (registry/images/node/warm.cjs) with require and receive.  See
 * guest/warm.c for what is said.  The program has process.argv as if it had been
 * started with its arguments.
 */
'use strict';
const { closeSync, writeSync } = require('node:fs');
const { isBuiltin } = require('node:module');
const CONTROL = 1023;
const ENDING = 1021;

function words() {
	return receive().split('\0').slice(0, -1);
}

for (const name of words()) {
	/* Only what Node has inside is loaded without a trace. */
	if (isBuiltin(name))
		require(name);
	else
		writeSync(CONTROL, `missing ${name}\n`);
}
/*
 * The compiler of TypeScript (registry/images/node/ts.cjs) is a program of its own,
 * half of whose time is to be read into this sandbox for the first time.
 */
if (process.execArgv.includes('/usr/libexec/isobox/ts.cjs'))
	require('node:child_process').spawnSync('/usr/libexec/isobox/esbuild',
		['--loader=ts', '--format=cjs', '--sourcemap=inline'],
		{ input: 'export enum A { B }' });
/* It is no module of node's, which is found out when it is loaded. */
try {
	process.dlopen({ exports: {} }, `/proc/self/fd/${ENDING}`);
} catch { }
closeSync(ENDING);
writeSync(CONTROL, 'ready\n');
const [count, ...rest] = words();
const args = rest.slice(0, Number(count));
const files = rest.slice(args.length);
/*
 * To load the hook Node has looked for a package.json here, and remembers that
 * there was none.  Then this is not the process for such a program.
 */
if (files.includes('package.json')) {
	writeSync(CONTROL, 'no\n');
	process.exit(1);
}
process.argv.push(...args);
writeSync(CONTROL, 'go\n');
closeSync(CONTROL);
