# SPDX-License-Identifier: Apache-2.0
"""What the tests run in each language. Every program here does the same thing
in its own words, so that one test holds for all of them."""

# Prints its arguments as one JSON-like line each: length and bytes in hex, so
# that nothing about quoting can hide.
PYTHON_ARGS = r'''
import sys
for a in sys.argv[1:]:
    b = a.encode("utf-8", "surrogateescape")
    print(len(b), b.hex())
'''

NODE_ARGS = r'''
for (const a of process.argv.slice(2)) {
  const b = Buffer.from(a, "utf8");
  console.log(`${b.length} ${b.toString("hex")}`);
}
'''

RUBY_ARGS = r'''
ARGV.each { |a| puts "#{a.bytesize} #{a.b.unpack1('H*')}" }
'''

GO_ARGS = r'''
package main

import (
	"fmt"
	"os"
)

func main() {
	for _, a := range os.Args[1:] {
		fmt.Printf("%d %x\n", len(a), a)
	}
}
'''

RUST_ARGS = r'''
use std::os::unix::ffi::OsStrExt;
fn main() {
    for a in std::env::args_os().skip(1) {
        let b = a.as_bytes();
        let h: String = b.iter().map(|x| format!("{:02x}", x)).collect();
        println!("{} {}", b.len(), h);
    }
}
'''

# Prints how many bytes came on stdin, how many of them were NUL, and their sum.
PYTHON_STDIN = r'''
import sys
d = sys.stdin.buffer.read()
print(len(d), d.count(0), sum(d))
'''

NODE_STDIN = r'''
const d = require("fs").readFileSync(0);
let zeros = 0, sum = 0;
for (const b of d) { if (b === 0) zeros++; sum += b; }
console.log(d.length, zeros, sum);
'''

TS_STDIN = r'''
import { readFileSync } from "node:fs";
const d: Buffer = readFileSync(0);
let zeros: number = 0, sum: number = 0;
for (const b of d) { if (b === 0) zeros++; sum += b; }
console.log(d.length, zeros, sum);
'''

RUBY_STDIN = r'''
d = $stdin.binmode.read
puts "#{d.bytesize} #{d.bytes.count(0)} #{d.bytes.sum}"
'''

GO_STDIN = r'''
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	d, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	zeros, sum := 0, 0
	for _, b := range d {
		if b == 0 {
			zeros++
		}
		sum += int(b)
	}
	fmt.Println(len(d), zeros, sum)
}
'''

RUST_STDIN = r'''
use std::io::Read;
fn main() {
    let mut d = Vec::new();
    std::io::stdin().read_to_end(&mut d).unwrap();
    let zeros = d.iter().filter(|b| **b == 0).count();
    let sum: u64 = d.iter().map(|b| *b as u64).sum();
    println!("{} {} {}", d.len(), zeros, sum);
}
'''


class Language:
    def __init__(self, name, aliases, hello, args, stdin, exit_3, error,
                 error_line, error_code, bad_source, bad_code, tree):
        self.name = name
        self.aliases = aliases
        self.hello = hello  # prints "Grüße, 世界 🌍" and a line end
        self.args = args
        self.stdin = stdin
        self.exit_3 = exit_3
        self.error = error  # dies by an uncaught error in line error_line
        self.error_line = error_line  # as its message names it
        self.error_code = error_code
        self.bad_source = bad_source  # is refused before it runs
        self.bad_code = bad_code
        self.tree = tree  # files; the first prints 42 with the others' help


LANGUAGES = [
    Language(
        "python", ["py", "py3", "python3"],
        'print("Grüße, 世界 🌍")', PYTHON_ARGS, PYTHON_STDIN,
        "import sys\nsys.exit(3)",
        "def f():\n    return 1 // 0\n\nf()\n", "line 2", 1,
        "x = 1\nprint(1\n", 1,
        [("main.py", "from pkg.deep.mod import answer\nprint(answer())\n"),
         ("pkg/__init__.py", ""), ("pkg/deep/__init__.py", ""),
         ("pkg/deep/mod.py",
          "import os\ndef answer():\n"
          "    p = os.path.join(os.path.dirname(__file__), 'n.txt')\n"
          "    return int(open(p).read())\n"),
         ("pkg/deep/n.txt", "42\n")]),
    Language(
        "python-slim", ["pyslim"],
        'print("Grüße, 世界 🌍")', PYTHON_ARGS, PYTHON_STDIN,
        "raise SystemExit(3)",
        "\n\n\nopen('/nonexistent')\n", "line 4", 1,
        "def f(:\n    pass\n", 1,
        [("main.py", "import sub.m\nprint(sub.m.n)\n"),
         ("sub/m.py", "n = 42\n")]),
    Language(
        "javascript", ["js", "node", "nodejs"],
        'console.log("Grüße, 世界 🌍")', NODE_ARGS, NODE_STDIN,
        "process.exit(3)",
        "function f() {\n  return null.x;\n}\nf();\n", ":2", 1,
        "let x = 1;\nlet x = 2;\n", 1,
        [("main.js", "const { answer } = require('./lib/a.js');\n"
                     "console.log(answer());\n"),
         ("lib/a.js", "const n = require('./n.json');\n"
                      "exports.answer = () => n.n;\n"),
         ("lib/n.json", '{"n": 42}')]),
    Language(
        "typescript", ["ts"],
        'const s: string = "Grüße, 世界 🌍";\nconsole.log(s);',
        NODE_ARGS, TS_STDIN,
        "const n: number = 3;\nprocess.exit(n);",
        "enum Colour { Red, Blue }\nfunction f(c: Colour): never {\n"
        "  throw new Error(Colour[c]);\n}\nf(Colour.Blue);\n", ":3", 1,
        "const x: number = ;\n", 1,
        [("main.ts", 'import { answer } from "./lib/a.ts";\n'
                     "console.log(answer<number>(42));\n"),
         ("lib/a.ts", "export function answer<T>(x: T): T { return x; }\n")]),
    Language(
        "ruby", ["rb"],
        'puts "Grüße, 世界 🌍"', RUBY_ARGS, RUBY_STDIN,
        "exit 3",
        "def f\n  nil.upcase\nend\nf\n", ":2:", 1,
        "def f(\nend end\n", 1,
        [("main.rb", "require_relative 'lib/a'\nputs answer\n"),
         ("lib/a.rb", "def answer\n  File.read(File.join(__dir__, 'n')).to_i\n"
                      "end\n"), ("lib/n", "42")]),
    Language(
        "go", ["golang"],
        'package main\n\nimport "fmt"\n\nfunc main() {\n'
        '\tfmt.Println("Grüße, 世界 🌍")\n}\n', GO_ARGS, GO_STDIN,
        'package main\n\nimport "os"\n\nfunc main() { os.Exit(3) }\n',
        "package main\n\nfunc main() {\n\tvar p *int\n\t*p = 1\n}\n",
        "main.go:5", 2,
        "package main\n\nfunc main() {\n\tx := 1\n}\n", 1,
        [("main.go", "package main\n\nimport (\n\t\"fmt\"\n\n"
                     "\t\"box/lib\"\n)\n\nfunc main() {\n"
                     "\tfmt.Println(lib.Answer())\n}\n"),
         ("go.mod", "module box\n\ngo 1.24\n"),
         ("lib/a.go", "package lib\n\nfunc Answer() int { return 42 }\n")]),
    Language(
        "rust", ["rs"],
        'fn main() {\n    println!("Grüße, 世界 🌍");\n}\n',
        RUST_ARGS, RUST_STDIN,
        "fn main() {\n    std::process::exit(3);\n}\n",
        "fn main() {\n    let v: Vec<i32> = Vec::new();\n"
        "    let i = std::env::args().count();\n"
        "    println!(\"{}\", v[i]);\n}\n", "main.rs:4", 101,
        "fn main() {\n    let x: i32 = \"a\";\n}\n", 1,
        [("main.rs", "mod lib;\nfn main() {\n"
                     "    println!(\"{}\", lib::answer());\n}\n"),
         ("lib/mod.rs", "mod deep;\npub fn answer() -> i32 "
                        "{ deep::N }\n"),
         ("lib/deep.rs", "pub const N: i32 = 42;\n")]),
]

# The greeting that each `hello` prints.
GREETING = "Grüße, 世界 🌍\n"
