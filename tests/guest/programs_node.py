# SPDX-License-Identifier: Apache-2.0
"""JavaScript and TypeScript programs, as programs_python.py has them."""

JAVASCRIPT = {
    "arguments": ("console.log(process.argv, process.execArgv,"
                  " process.argv0, process.title)",
                  {"args": ["", "-x", "a b", "\u00e4\u4e2d", "--"]}),
    "process": """console.log(Object.keys(process).sort());
console.log(process.env, process.cwd(), process.pid, process.ppid,
	process.exitCode, process.connected, process.config.target_defaults,
	process.versions.node.split('.')[0], process.release.name,
	process.execPath, process.umask(), process.getuid());
console.log(process.eventNames(), process.allowedNodeEnvironmentFlags.size);""",
    "module": """console.log(module, __filename, __dirname, require.main === module,
	module.parent, module.children, Object.keys(require.cache),
	require.extensions, module.paths, exports, this === exports);""",
    "module_state": """const M = require('module');
console.log(M._pathCache, Object.keys(M._cache), M.globalPaths,
	M._preloadModules, Object.keys(M));""",
    "globals": "console.log(Object.getOwnPropertyNames(globalThis).sort(),"
               " Object.keys(globalThis))",
    "file_names": "console.log(new Error('x').stack);"
                  " console.trace('here')",
    "descriptors": """const fs = require('fs');
console.log(fs.readdirSync('/proc/self/fd').map(Number).sort((a, b) => a - b));
console.log(fs.openSync('/dev/null'));""",
    "status": """for (const line of require('fs').readFileSync('/proc/self/status',
	'utf8').split('\\n'))
	if (/^(Sig|Cap|Threads|Name|Uid|NoNew)/.test(line)) console.log(line);""",
    "limits": "console.log(require('fs').readFileSync('/proc/self/limits',"
              " 'utf8'))",
    "streams": """for (const s of [process.stdin, process.stdout, process.stderr])
	console.log(s.isTTY, s.fd, s.constructor.name, s.writableHighWaterMark);""",
    "stdin": ("process.stdin.on('data', (d) => console.log(String(d)))"
              ".on('end', () => console.log('end'))", {"stdin": b"a\nb"}),
    "stdin_sync": ("console.log(require('fs').readFileSync(0, 'utf8'))",
                   {"stdin": b"text"}),
    "readline": ("""const rl = require('readline').createInterface({
	input: process.stdin });
rl.on('line', (l) => console.log([l])).on('close', () => console.log('c'));""",
                 {"stdin": b"a\nb\n"}),
    "exit_code": "process.exitCode = 7; process.on('exit', (c) =>"
                 " console.log('exit', c))",
    "exit": "process.on('exit', () => console.log('x')); process.exit(3)",
    "before_exit": "process.once('beforeExit', () => console.log('before'))",
    "throw": "function f() {\n\tthrow new TypeError('bad');\n}\nf();\n",
    "throw_value": "throw { a: 1 }",
    "rejection": "Promise.reject(new Error('unhandled'))",
    "uncaught": "process.on('uncaughtException', (e, o) =>"
                " console.log(e.message, o)); throw new Error('x')",
    "syntax_error": "console.log(1);\nlet x = ;\n",
    "reference_error": "console.log(nosuch)",
    "not_found": "require('./nosuch')",
    "not_found_package": "require('nosuch')",
    "error_required": ("require('./x')", {"files": [("x.js", "null.y")]}),
    "json": ("console.log(require('./a.json'))",
             {"files": [("a.json", '{"a": 1}')]}),
    "esm": """import fs from 'node:fs';
console.log(import.meta, typeof require, this);
console.log(await Promise.resolve(1));
export const x = 1;""",
    "esm_import": ("import { y } from './y.mjs'; console.log(y)",
                   {"files": [("y.mjs", "export const y = import.meta.url")]}),
    "esm_error": "import x from './nosuch.mjs'",
    "package_json": ("console.log(typeof require, this)",
                     {"files": [("package.json", '{"type": "module"}')]}),
    "package_json_commonjs": ("console.log(typeof module)", {
        "files": [("package.json", '{"type": "commonjs"}')]}),
    "package_json_broken": ("console.log(1)",
                            {"files": [("package.json", "{")]}),
    "node_modules": ("console.log(require('dep'))", {"files": [
        ("node_modules/dep/index.js", "module.exports = __filename")]}),
    "dynamic_import": "import('node:path').then((m) =>"
                      " console.log(m.sep, Object.keys(m).length > 9))",
    "shebang": "#!/usr/bin/env node\nconsole.log(1)",
    "empty": "",
    "bom": (b"\xef\xbb\xbfconsole.log(1)", {}),
    "strict": "'use strict'; undeclared = 1",
    "worker": """const { Worker, isMainThread, parentPort } =
	require('worker_threads');
if (isMainThread)
	new Worker(__filename).on('message', console.log);
else
	parentPort.postMessage([process.argv.length, process.execArgv,
		Object.keys(require.cache)]);""",
    "fork": """const { fork } = require('child_process');
if (process.argv[2] === 'child')
	process.send([process.execArgv, process.argv]);
else
	fork(__filename, ['child']).on('message', console.log)
		.on('exit', (c) => console.log(c));""",
    "spawn": "console.log(require('child_process').spawnSync('node', ['-p',"
             " 'process.execArgv.concat(process.argv.length)'])"
             ".stdout.toString())",
    "exec_fds": "console.log(require('child_process').execSync("
                "'ls /proc/self/fd').toString())",
    "cluster": """const cluster = require('cluster');
if (cluster.isPrimary) {
	cluster.fork().on('exit', (c) => console.log('worker', c));
} else {
	console.log(process.execArgv); process.exit(4);
}""",
    "signals": """process.on('SIGTERM', () => { console.log('got it');
	process.exit(1); });
process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 3000);""",
    "killed": "process.kill(process.pid, 'SIGKILL')",
    "abort": "process.abort()",
    "timers": "setTimeout(console.log, 500, 2); setImmediate(console.log, 1);"
              " process.nextTick(console.log, 0); queueMicrotask(() =>"
              " console.log('m'))",
    "recursion": "let n = 0; function f() { n++; f(); }\n"
                 "try { f(); } catch (e) { console.log(e.name, e.message); }",
    "warnings": "process.emitWarning('careful'); new Buffer(1)",
    "http": """const http = require('http');
const s = http.createServer((q, r) => r.end('hi')).listen(0, () =>
	http.get({ port: s.address().port }, (r) => r.on('data', (d) => {
		console.log(String(d)); s.close(); r.destroy(); })));""",
    "fetch": "fetch('http://127.0.0.1:9/').catch((e) =>"
             " console.log(e.message, e.cause.code))",
    "vm": "console.log(require('vm').runInNewContext('typeof process'))",
    "repl_module": "console.log(typeof require('repl').start)",
    "intl": "console.log(new Intl.NumberFormat('de').format(1234.5),"
            " new Date(0).toString())",
    "command_line": "const fs = require('fs');"
                    " console.log(fs.readFileSync('/proc/self/cmdline',"
                    " 'utf8'), fs.readFileSync('/proc/self/environ', 'utf8'))",
    "itself": "const fs = require('fs'); console.log(fs.readFileSync("
              "__filename, 'utf8'), fs.statSync(__filename).mode)",
    "large_output": "process.stdout.write('x'.repeat(60000))",
    "process_limit": ("""const { spawn } = require('child_process');
let n = 0;
for (let i = 0; i < 40; i++)
	spawn('sleep', ['9']).on('error', (e) => { if (!n++)
		console.log(e.code); });
setTimeout(() => process.exit(n > 0 ? 0 : 1), 1500);""", {"pids": 24}),
}

TYPESCRIPT = {
    "hello": "const x: number = 1; console.log(x)",
    "features": """enum E { A = 1, B }
namespace N { export const x = 2; }
class P { constructor(private a: number) {} get() { return this.a; } }
console.log(E[2], N.x, new P(3).get());""",
    "arguments": ("console.log(process.argv, process.execArgv)",
                  {"args": ["a", "--b"]}),
    "state": """console.log(Object.keys(require.cache), module.children.length,
	require('module')._pathCache, process.env);""",
    "files": ("import { f } from './lib/f'; console.log(f(1))", {"files": [
        ("lib/f.ts", "export const f = (x: number): number => x + 1;")]}),
    "modules": "import fs from 'node:fs'; console.log(typeof fs.statSync,"
               " import.meta.url); await Promise.resolve()",
    "throw": "interface A { x: number }\n\nfunction f(a: A): never {\n"
             "\tthrow new Error('bad ' + a.x);\n}\nf({ x: 1 });\n",
    "syntax_error": "const x: number = ;\n",
    "syntax_error_imported": ("import './x'", {
        "files": [("x.ts", "let y: = 1")]}),
    "scratch": "import fs from 'fs'; console.log(fs.readdirSync('/tmp'),"
               " fs.readdirSync('.'), fs.readdirSync('/proc/self/fd').length)",
    "fork": """import { fork } from 'child_process';
if (process.argv[2]) process.send!(process.execArgv);
else fork(__filename, ['x']).on('message', (m) => console.log(m));""",
    "worker": """import { Worker, isMainThread, parentPort } from 'worker_threads';
if (isMainThread) new Worker(__filename).on('message', console.log);
else parentPort!.postMessage('from ' + (1 as number));""",
    "children": "import { execSync } from 'child_process';"
                " console.log(execSync('ls /proc | grep -c \"^[0-9]\"')"
                ".toString())",
    "process": "console.log(process.eventNames(), Object.keys(process).length,"
               " (process as any)._getActiveHandles().length)",
}
