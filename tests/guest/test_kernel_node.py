# SPDX-License-Identifier: Apache-2.0
"""The JavaScript kernel in a real sandbox."""

import os
import select
import struct
import time
import unittest

import kernels
from again import again
from kernels import Kernel
from sandbox import setUpModule, tearDownModule

assert setUpModule and tearDownModule  # unittest finds them here


# As kernels.HOLD: a callback that runs when the step has ended.
HELD = ("setInterval(function () {\n"
        "  if (!require('fs').existsSync('/workspace/go')) return\n"
        "  clearInterval(this)\n"
        "  require('fs').writeFileSync('/workspace/gone', 'x')\n"
        "  %s\n}, 20); 0")


class KernelCase(kernels.KernelCase):
    language = "node"


class TestScope(KernelCase):
    def test_what_persists(self):
        self.good("let a = 1; const b = 2; var c = 3; class D { x = 4 }\n"
                  "function e() { return a + b + c + new D().x }")
        self.good("a = 10; console.log(e())", "19\n")
        self.good("let a = 5; const b = 6; class D { x = 0 }")
        self.good("console.log(e())", "14\n")

    def test_await(self):
        self.good("const v = await new Promise(r => setTimeout(r, 10, 7))\n"
                  "console.log(v)", "7\n")
        self.good("for await (const i of [1, Promise.resolve(2)])\n"
                  "  console.log(i)", "1\n2\n")

    def test_imports(self):
        self.good("import fs, {readFileSync as read} from 'node:fs';\n"
                  "import * as path from 'path'\nimport 'node:os'\n"
                  "console.log(typeof fs.statSync, typeof read, "
                  "path.join('a', 'b'))", "function function a/b\n")
        self.good("console.log(path.basename('x/y'))", "y\n")
        self.good("const text = `import x from 'y'` // import z from 'z'\n"
                  "/* import */ const re = /import(x)/\n"
                  "const {join} = await import('node:path')\n"
                  "const o = {import: n => n}\n"
                  "console.log(text, re.source, join('c', 'd'), o.import(1),\n"
                  "  typeof (await import(/* c */ 'os')).cpus,\n"
                  "  `${typeof (await import('os')).EOL} import('q')`)",
                  "import x from 'y' import(x) c/d 1 function "
                  "string import('q')\n")
        self.good("const later = () => import('node:os')\n"
                  "console.log(typeof (await later()).cpus)", "function\n")
        self.good("import {\n  sep, // c\n  join as j,\n} from 'node:path'\n"
                  "console.log(sep, j('a'), import.meta.url)",
                  "/ a file:///box/main.mjs\n")
        s = self.bad("import {\n  sep\n} from 'path'\nnull.x",
                     "    at <step-%d>:4:6" % (self.kernel.number + 1))
        self.assertIn("TypeError", s.err)
        s = self.step("import x from 'no-such-package'")
        self.assertIn("Cannot find package 'no-such-package'", s.err)
        s = self.step("import {x from 'y'")
        self.assertIn("SyntaxError", s.err)

    def test_files(self):
        files = [("lib/one.js", "exports.w = 1"), ("two.mjs",
                                                  "export const w = 2")]
        self.good("console.log(require('./lib/one').w, "
                  "(await import('./two.mjs')).w)", "1 2\n", files=files)
        self.good("import {w} from './two.mjs'; console.log(w)", "2\n")
        self.good("require('fs').writeFileSync('three.js', 'exports.w = 3')\n"
                  "console.log(require('./three').w, process.cwd())",
                  "3 /workspace\n")

    def test_what_a_program_finds(self):
        self.good("console.log(process.argv.length, __dirname, typeof module, "
                  "typeof exports, this === globalThis)",
                  "1 /box object object true\n")

    def test_sources_of_any_kind(self):
        self.good("")
        self.good("// nothing")
        self.good("\ufeffconsole.log(1)", "1\n")
        self.good("console.log(1)\r\nconsole.log(2)\r\n", "1\n2\n")
        self.step(b"\xff")
        self.good("console.log('\u4e2d')", "\u4e2d\n")


class TestExit(KernelCase):
    def test_codes(self):
        for code, want in (("0", 0), ("process.exit()", 0),
                           ("process.exit(3)", 3), ("process.exitCode = 4", 4),
                           ("1", 0), ("process.exit(256)", 0),
                           ("try { process.exit(5) } catch {}\n"
                            "process.exit(1)", 5),
                           ("setTimeout(() => process.exit(6), 10)\n"
                            "await new Promise(() => {})", 6),
                           ("await null; process.exit(7)", 7)):
            s = self.step(code)
            self.assertEqual((s.code, s.raised, s.out, s.err),
                             (want, False, "", ""), code)
        self.good("console.log('lives')", "lives\n")

    def test_errors(self):
        s = self.bad("function f() {\n  throw new Error('boom')\n}\nf()",
                     "    at <step-%d>:4:1" % (self.kernel.number + 1))
        self.assertEqual(s.err, "Uncaught Error: boom\n"
                         "    at f (<step-%d>:2:9)\n    at <step-%d>:4:1\n"
                         % (self.kernel.number, self.kernel.number))
        self.bad("throw 5", "Uncaught 5")
        self.bad("await null; throw new RangeError('r')",
                 "    at <step-%d>:1:19" % (self.kernel.number + 1))
        s = self.step("let q = 1;\nlet r = = 2")
        self.assertEqual(s.err, "<step-%d>:2\nlet r = = 2\n        ^\n"
                         "Uncaught SyntaxError: Unexpected token '='\n"
                         % self.kernel.number)
        self.bad("nosuch", "    at <step-%d>:1:1" % (self.kernel.number + 1))
        s = self.step("throw { get message() { throw 1 }, toString: null }")
        self.assertEqual(s.code, 1)

    def test_rejections_and_strays(self):
        s = self.step("Promise.reject(new Error('unhandled')); 5")
        self.assertEqual((s.code, s.raised), (1, True))
        self.assertIn("Error: unhandled", s.err)
        s = self.step("setTimeout(() => { throw new Error('stray') }, 10)\n"
                      "await new Promise(r => setTimeout(r, 1000))")
        self.assertEqual((s.code, s.raised), (1, True))
        self.assertIn("Error: stray", s.err)
        self.good(HELD % "throw new Error('later')")
        self.kernel.go()
        s = self.step("1")
        self.assertEqual(s.code, 0)
        self.assertIn("Error: later", s.err)


class TestStreams(KernelCase):
    def test_console(self):
        s = self.step("console.log('a', {b: 1}); console.error('e')\n"
                      "process.stdout.write('w')")
        self.assertEqual((s.out, s.err), ("a { b: 1 }\nw", "e\n"))

    def test_large(self):
        s = self.step("console.log('x'.repeat(200000)); 0",
                      output_bytes=262144)
        self.assertEqual(len(s.out), 200001)
        s = self.step("for (let i = 0; i < 100000; i++) console.log(i)")
        self.assertEqual((s.code, len(s.out)), (0, 65537))
        self.good("console.log('after')", "after\n")

    def test_input(self):
        read = "console.log(require('fs').readFileSync(0, 'utf8'))"
        self.good(read, "\n")
        self.good(read, "x\u00e4\n", stdin="x\u00e4")
        self.good("for await (const line of require('readline')"
                  ".createInterface({input: process.stdin}))\n"
                  "  console.log('>' + line)", ">a\n>b\n", stdin="a\nb\n")
        self.good("let t = ''; for await (const c of process.stdin) t += c\n"
                  "console.log(t)", "again\n", stdin="again")

    def test_closed(self):
        for code in ("require('fs').closeSync(1)",
                     "require('fs').closeSync(2)",
                     "require('fs').closeSync(1); fd = "
                     "require('fs').openSync('/dev/null', 'w')",
                     "process.stdout.end()", "process.stderr.destroy()"):
            self.step(code)
            s = self.step("process.stdout.write('out'); "
                          "process.stderr.write('err'); 0")
            self.assertEqual((s.code, s.out, s.err), (0, "out", "err"), code)

    def test_timers_go_on(self):
        self.good(HELD % "console.log('late')")
        self.kernel.go()
        self.good("console.log('now')", "late\nnow\n")

    def test_children(self):
        self.good("const cp = require('child_process')\n"
                  "console.log(cp.execSync('echo $0 sub').toString().trim())\n"
                  "cp.spawnSync('sh', ['-c', 'echo inherited'], "
                  "{stdio: 'inherit'}); 0", "/bin/sh sub\ninherited\n")
        s = self.step("process.exit(cp.spawnSync('sh', ['-c', 'nosuch'],"
                      " {stdio: 'inherit'}).status)")
        self.assertEqual(s.code, 127)


class TestArtifacts(KernelCase):
    def test_values(self):
        self.assertEqual(self.good("1 + 1").artifacts, [])
        for code, text in (("1 + 1", "2"), ("({a: [1]})", "{ a: [ 1 ] }"),
                           ("'s'", "'s'"), ("10n", "10n"), ("-0", "-0"),
                           ("NaN", "NaN"), ("Symbol('y')", "Symbol(y)"),
                           ("null", "null"), ("await 5", "5"),
                           ("[1, 2]", "[ 1, 2 ]")):
            self.assertEqual(self.good(code, display=True).artifacts,
                             [("text/plain", text)], code)
        for code in ("undefined", "let z = 1", ""):
            self.assertEqual(self.good(code, display=True).artifacts, [])

    def test_rich(self):
        self.good("class All { _repr_html_() { return '<b>' }\n"
                  "  async _repr_png_() { return Buffer.from('\\x89PNG', "
                  "'latin1') }\n  _repr_json_() { return {a: 1} } }")
        self.assertEqual(self.good("new All()").artifacts, [
            ("text/html", "<b>"), ("image/png", b"\x89PNG"),
            ("application/json", '{"a":1}')])
        self.assertEqual(self.good("All").artifacts, [])
        s = self.good("({[Symbol.for('Jupyter.display')]: () => ({"
                      "'text/plain': 'p', 'text/html': 'h', "
                      "'image/png': 'iVBO'})})")
        self.assertEqual(s.artifacts, [("text/html", "h"),
                                       ("image/png", b"\x89PN")])
        s = self.good("await display(new All(), 5); 0")
        self.assertEqual(s.artifacts[-1], ("text/plain", "5"))

    def test_caps(self):
        s = self.good("for (let i = 0; i < 9; i++) display(i); 0")
        self.assertEqual((len(s.artifacts), s.dropped), (8, True))
        s = self.good("({_repr_html_: () => 'x'.repeat(2 << 20)})")
        self.assertEqual((len(s.artifacts), s.dropped), (1, False))
        s = self.good("({_repr_html_: () => 'x'.repeat((2 << 20) + 1)})")
        self.assertEqual((len(s.artifacts), s.dropped), (0, True))

    def test_capture_breaks_nothing(self):
        for body in ("throw new Error('x')", "return 5", "process.exit(3)"):
            self.assertEqual(self.step("({_repr_html_() { %s }})" % body).err,
                             "", body)
        self.good("new Proxy({}, {get() { throw 1 }})")
        self.good("console.log(1)", "1\n")

    def test_what_one_form_throws_is_only_its_own(self):
        half = ("({_repr_html_() { throw 1 }, "
                "_repr_png_() { return Buffer.from('png') }})")
        self.assertEqual(self.good(half).artifacts, [("image/png", b"png")])
        s = self.good(half, display=True)
        self.assertEqual([a[0] for a in s.artifacts],
                         ["image/png", "text/plain"])
        s = self.good("({_repr_mimebundle_: () => ({'application/json': 1n, "
                      "'text/html': ['a', 'b']})})")
        self.assertEqual(s.artifacts, [("text/html", "ab")])

    def test_what_init_would_not_take(self):
        s = self.good(
            "({_repr_mimebundle_: () => ({['a'.repeat(32) + '/x']: 'no', "
            "['b'.repeat(31) + '/' + 'c'.repeat(64)]: 'yes'})})")
        self.assertEqual([a[1] for a in s.artifacts], ["yes"])


class TestInterrupt(KernelCase):
    def interrupt_one(self, code):
        """(seconds, step)"""
        self.kernel.begin("console.log('up')\n;" + code)
        self.kernel.printed()
        time.sleep(0.5)
        began = time.monotonic()
        self.kernel.interrupt()
        s = self.kernel.end(10)
        took = time.monotonic() - began
        self.assertEqual((s.code, s.raised, s.interrupted), (1, True, True))
        self.good("console.log('lives')", "lives\n")
        return took, s

    def interrupted(self, code):
        took, s = again(lambda: self.interrupt_one(code), lambda x: x[0] < 2)
        self.assertLess(took, 2)
        return s

    def test_loops_and_waits(self):
        self.good("let kept = 1")
        self.interrupted("for (;;) ;")
        self.interrupted("for (;;) try { for (;;) ; } catch {} finally {}")
        self.interrupted("await new Promise(() => {})")
        self.interrupted("await new Promise(r => setTimeout(r, 100000))")
        self.interrupted("require('child_process').spawnSync('sleep', ['100'])"
                         "\nfor (;;) ;")
        self.interrupted("for (;;) console.log('x'.repeat(70))")
        self.interrupted("({_repr_html_() { for (;;) ; }})")
        self.good("console.log(kept)", "1\n")

    def test_early_and_late(self):
        for _ in range(20):
            self.kernel.begin("for (;;) ;")
            self.kernel.interrupt()
            self.assertTrue(self.kernel.end(10).interrupted)
            self.kernel.interrupt()
            self.good("console.log(1)", "1\n")

    def test_what_was_abandoned_ends_no_later_step(self):
        self.kernel.begin("console.log('up')\n"
                          "await new Promise(r => setTimeout(r, 4000)); 5")
        self.kernel.printed()
        time.sleep(0.5)  # it waits by now: see guest/kernel/node/1_link.cjs
        self.kernel.interrupt()
        self.assertTrue(self.kernel.end(10).interrupted)
        self.good("await new Promise(r => setTimeout(r, 5000, 6))")


class TestCareless(KernelCase):
    def test_what_is_replaced(self):
        for code in ("process.exit = process.kill = null",
                     "Promise = undefined", "Buffer.concat = null",
                     "JSON.stringify = Map = Set = null",
                     "setImmediate = setTimeout = null",
                     "Array.prototype.push = null",
                     "Object.defineProperty = null",
                     "process.removeAllListeners()",
                     "process.stdout.write = null",
                     "Error.prepareStackTrace = () => { throw 1 }",
                     "require('fs').writeSync = null"):
            with self.subTest(code), Kernel("node") as kernel:
                try:
                    kernel.step(code, timeout=10)
                    kernel.step("1", timeout=10)
                except kernels.Dead:
                    pass  # or else it answers; it is never mute


class TestEnds(unittest.TestCase):
    def setUp(self):
        if not kernels.have("node"):
            self.skipTest("there is no image for node")

    def test_by_itself(self):
        for code, want in (("process.kill(process.pid, 'SIGKILL')", (137, 9)),
                           ("process.abort()", (134, 6)),
                           ("process.reallyExit(3)", (3, 0)),
                           ("require('fs').writeSync(1022, 'garbage!' + "
                            "'x'.repeat(9))", (137, 9))):
            with self.subTest(code), Kernel("node") as kernel:
                kernel.begin(code + "; for (;;) ;")
                self.assertEqual(kernel.dies(), want)

    def test_nobody_reads(self):
        with Kernel("node") as kernel:
            kernel.slow_reader()
            kernel.begin("console.log('y'.repeat(60000)); for (;;) ;")
            select.select([kernel.output], [], [], 30)
            time.sleep(0.5)
            os.write(kernel.input, struct.pack("<IB3x", 0, 42))
            time.sleep(1)
            self.assertTrue(kernel.end(10).interrupted)


class TestMany(KernelCase):
    def test_a_thousand_steps(self):
        code = "console.log(process.memoryUsage().heapUsed, " \
            "require('fs').readdirSync('/proc/self/fd').length, " \
            "/VmRSS:\\s+(\\d+)/.exec(require('fs')" \
            ".readFileSync('/proc/1/status'))[1])"
        for i in range(200):
            self.good("let x = %d; console.log(x)" % i, "%d\n" % i)
        before = self.step(code).out.split()
        for i in range(800):
            self.good("let x = %d; console.log(x)" % i, "%d\n" % i)
        after = self.step(code).out.split()
        self.assertLess(int(after[0]), int(before[0]) + (16 << 20))
        self.assertLessEqual(int(after[1]), int(before[1]) + 1)
        self.assertLessEqual(int(after[2]), int(before[2]) + 64)


if __name__ == "__main__":
    unittest.main()
