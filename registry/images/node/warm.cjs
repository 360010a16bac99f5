// SPDX-License-Identifier: Apache-2.0
'use strict';
/*
 * Preloaded before a program (node --require warm.cjs main.js). An interpreter
 * that isobox-init wants to wait for its program has a descriptor more, 1023:
 * then what is to be done comes from there (guest/warm). Otherwise, and after
 * that, the program finds nothing of this file.
 */
const fs = require('node:fs');
const Module = require('node:module');
const CONTROL = 1023;

/* A number of bytes, a line feed, and that many bytes. */
function receive() {
	const digit = Buffer.alloc(1);
	let size = 0;

	while (fs.readSync(CONTROL, digit) === 1 && digit[0] !== 10)
		size = size * 10 + digit[0] - 48;
	const text = Buffer.alloc(size);
	for (let n, at = 0; at < size; at += n) {
		n = fs.readSync(CONTROL, text, { offset: at });
		if (n === 0)
			process.exit(1);
	}
	return text.toString();
}

/* In a thread of the program this number may be the program's own. */
function shallWait() {
	if (process.ppid !== 1 ||
		!require('node:worker_threads').isMainThread)
		return false;
	try {
		fs.writeSync(CONTROL, 'node\n');
		return true;
	} catch {
		return false;
	}
}

function hide() {
	const at = process.execArgv.indexOf(__filename);

	if (at > 0 && process.execArgv[at - 1] === '--require')
		process.execArgv.splice(at - 1, 2);
	delete Module._cache[__filename];
	for (const [key, file] of Object.entries(Module._pathCache))
		if (file === __filename)
			delete Module._pathCache[key];
	module.parent.children.length = 0;
}

if (shallWait())
	new Function('require', 'receive', receive())(require, receive);
hide();
