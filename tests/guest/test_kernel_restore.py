# SPDX-License-Identifier: Apache-2.0
"""Kernels over a checkpoint and its restore, by a user without rights."""

import time
import unittest

import kernels
import sandbox
from kernels import HELD, HOLD, Kernel
from sandbox import setUpModule, tearDownModule

assert setUpModule and tearDownModule  # unittest finds them here

PYTHON = """
import os, random, secrets, ssl, tempfile, threading, time, uuid
n, words, begun = 0, ['kept'], time.time()
def run():
    global n
    while True: time.sleep(.02); n += 1
threading.Thread(target=run, daemon=True).start()
f = open('/workspace/open', 'w+')
random.seed(1); _ = ssl.RAND_bytes(4)
"""
PYTHON_LOOK = """
m = n
for _ in range(200):
    time.sleep(.02)
    if n > m: break
f.write('x'); f.flush(); f.seek(0)
print(n > m, len(f.read()), words, abs(time.time() - os.stat(
    '/workspace/open').st_mtime) < 5)
"""
PYTHON_DRAW = """
print(random.random(), uuid.uuid4(), secrets.token_hex(4),
      ssl.RAND_bytes(4).hex(), tempfile.mktemp(), sep='\\n')
"""
PYTHON_PRY = """
for i in range(3):
    for how in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        try: print(os.open('/proc/1/fd/%d' % i, how | os.O_NONBLOCK))
        except PermissionError: print('no')
"""
NODE = """
const crypto_ = require('crypto'), fs = require('fs')
let n = 0, words = ['kept']
setInterval(() => n++, 20)
const f = fs.openSync('/workspace/open', 'w+')
Math.random(); crypto.randomUUID(); crypto_.randomBytes(4)
"""
NODE_LOOK = """
let m = n
for (let i = 0; i < 200 && n === m; i++)
  await new Promise(r => setTimeout(r, 20))
fs.writeSync(f, 'x')
console.log(n > m, fs.readFileSync('/workspace/open').length, words,
  Math.abs(Date.now() - fs.fstatSync(f).mtimeMs) < 5000)
"""
NODE_DRAW = """
console.log([Math.random(), crypto.randomUUID(),
  crypto_.randomBytes(4).toString('hex'), crypto_.randomInt(1e9),
  crypto.getRandomValues(new Uint32Array(1))[0]].join('\\n'))
"""


class RestoreCase:
    def setUp(self):
        if not kernels.have(self.language):
            self.skipTest("there is no image for " + self.language)
        self.workspace = sandbox.base.directory()

    def image(self):
        return sandbox.base.directory()

    def look(self, kernel, size):
        s = kernel.step(self.look_code)
        self.assertEqual((s.code, s.err, s.out), (0, "", self.seen % size))

    def test_generations(self):
        """Variables, a thread or timer and an open file, each time right."""
        with Kernel(self.language, workspace=self.workspace) as kernel:
            self.assertEqual(kernel.step(self.code).err, "")
            self.look(kernel, 1)
            image = self.image()
            kernel.save(image)
        for size in (2, 3):
            with Kernel(self.language, workspace=self.workspace,
                        checkpoint=image) as kernel:
                kernel.restored()
                self.look(kernel, size)
                kernel.begin("while True: pass" if self.language != "node"
                             else "for (;;) ;")
                kernel.interrupt()
                self.assertTrue(kernel.end(10).interrupted)
                image = self.image()
                kernel.save(image)

    def test_clones_draw_differently(self):
        """In each generation, and who has drawn before it was saved, too."""
        image = self.image()
        with Kernel(self.language, workspace=self.workspace) as kernel:
            self.assertEqual(kernel.step(self.code).err, "")
            kernel.step(self.draw_code)
            kernel.save(image)
        for generation in (1, 2):
            drawn = []
            following = self.image()
            for save in (False, True):
                with Kernel(self.language, workspace=self.workspace,
                            checkpoint=image) as kernel:
                    kernel.restored()
                    s = kernel.step(self.draw_code)
                    self.assertEqual(s.err, "")
                    drawn.append(s.out.split())
                    if save:
                        kernel.save(following)
            for one, other in zip(*drawn):
                self.assertNotEqual(one, other, generation)
            image = following


class TestPython(RestoreCase, unittest.TestCase):
    language = "python-slim"
    code, look_code, draw_code = PYTHON, PYTHON_LOOK, PYTHON_DRAW
    seen = "True %d ['kept'] True\n"

    def test_inits_descriptors_stay_its_own(self):
        image = self.image()
        with Kernel(self.language, workspace=self.workspace) as kernel:
            kernel.step("import os")
            kernel.save(image)
        with Kernel(self.language, workspace=self.workspace,
                    checkpoint=image) as kernel:
            # Before init has been told, too.
            self.assertEqual(kernel.step(PYTHON_PRY).out, "no\n" * 9)
            kernel.restored()
            self.assertEqual(kernel.step(PYTHON_PRY).out, "no\n" * 9)

    def test_output_of_the_time_before(self):
        """What was not yet shown is not lost."""
        image = self.image()
        with Kernel(self.language, workspace=self.workspace) as kernel:
            kernel.step("import os, time")
            kernel.step("if os.fork() == 0:\n  %s\n"
                        "  os.write(1, b'later'); %s; os._exit(0)"
                        % (HOLD, HELD))
            kernel.go()
            time.sleep(1)
            kernel.save(image)
        with Kernel(self.language, workspace=self.workspace,
                    checkpoint=image) as kernel:
            kernel.restored()
            self.assertEqual(kernel.step("pass").out, "later")


class TestNode(RestoreCase, unittest.TestCase):
    language = "node"
    code, look_code, draw_code = NODE, NODE_LOOK, NODE_DRAW
    seen = "true %d [ 'kept' ] true\n"


if __name__ == "__main__":
    unittest.main()
