# SPDX-License-Identifier: Apache-2.0
"""Compiled languages in a sandbox that waited: the same answers as in one that
was booted for the run."""

import unittest

from harness import Service

GO_ECHO = r'''
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	b, _ := io.ReadAll(os.Stdin)
	entries, _ := os.ReadDir("/tmp")
	fmt.Println(os.Args[1:], len(b), len(os.Environ()), entries)
	fmt.Fprintln(os.Stderr, "bye")
	os.Exit(7)
}
'''
RUST_ECHO = r'''
use std::io::Read;
fn main() {
    let mut b = Vec::new();
    std::io::stdin().read_to_end(&mut b).unwrap();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let files: Vec<_> = std::fs::read_dir("/tmp").unwrap()
        .map(|f| f.unwrap().file_name()).collect();
    println!("{:?} {} {} {:?}", args, b.len(), std::env::vars().count(), files);
    eprintln!("bye");
    std::process::exit(7);
}
'''
ECHO = {"args": ["a b", "", "é"], "stdin": "x" * 100000}
LARGE = "// %s\nfn main() { println!(\"large\"); }" % ("x" * 5000)

PROGRAMS = {
    "go": [
        {"code": GO_ECHO, **ECHO},
        {"code": "package main\nfunc main() { undefined() }\n"},
        {"code": "package main\nfunc main() { panic(\"no\") }\n"},
        {"files": [
            {"name": "main.go", "content": "package main\n\nimport "
             "\"box/util\"\n\nfunc main() { println(util.F()) }\n"},
            {"name": "util/util.go",
             "content": "package util\n\nfunc F() int { return 7 }\n"}]},
    ],
    "rust": [
        {"code": RUST_ECHO, **ECHO},
        {"code": "fn main() { let x = 1; }"},
        {"code": "fn main() { 1 }"},
        {"code": "fn main() { panic!(\"no\") }"},
        {"code": LARGE},
        {"files": [
            {"name": "main.rs",
             "content": "mod util; fn main() { println!(\"{}\", util::f()) }"},
            {"name": "util.rs", "content": "pub fn f() -> i32 { 7 }"}]},
        {"files": [{"name": "@other.rs",
                    "content": "fn main() { println!(\"other\") }"}]},
    ],
}
SAME = ("stdout", "stderr", "exitCode", "signal", "timedOut", "oomKilled",
        "truncated")


class WarmAndCold(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cold = Service(warm=False)
        cls.addClassCleanup(cls.cold.stop)
        cls.cold.start()
        cls.warm = Service(warm=True)
        cls.addClassCleanup(cls.warm.stop)
        cls.warm.start()

    def run_in(self, service, language, members):
        r = service.client().execute(language, network=False, **members)
        self.assertEqual(r.status, 200, r)
        return ({k: r.json()["run"][k] for k in SAME},
                'desc="warm"' in r.header("Server-Timing"))

    def run_warm(self, language, members):
        """Runs until a sandbox waited for one; every answer is compared."""
        cold, was_warm = self.run_in(self.cold, language, members)
        self.assertFalse(was_warm)
        for _ in range(8):
            warm, was_warm = self.run_in(self.warm, language, members)
            self.assertEqual(warm, cold)
            if was_warm:
                return
            self.warm.wait_pool(1)
        self.fail("no sandbox waited for " + language)

    def test_same_answers(self):
        for language, programs in PROGRAMS.items():
            for i, members in enumerate(programs):
                with self.subTest(language=language, program=i):
                    self.run_warm(language, members)
