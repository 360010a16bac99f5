# SPDX-License-Identifier: Apache-2.0
"""The programs that `make bench` runs."""

import collections

import subjects

HELLO = {
    "python": "print('hello')",
    "python-slim": "print('hello')",
    "javascript": "console.log('hello');",
    "typescript": "const s: string = 'hello'; console.log(s);",
    "ruby": "puts 'hello'",
    "go": 'package main\n\nimport "fmt"\n\n'
          'func main() { fmt.Println("hello") }\n',
    "rust": 'fn main() { println!("hello"); }\n',
}

# A warm run beside a cold one, or beside PLAIN.
GOALS = {"javascript": 0.35, "ruby": 0.35, "go": 0.5, "rust": 0.5}

PANDAS = "import pandas\nprint(pandas.DataFrame({'a': [1, 2]}).a.sum())"
PANDAS_SAYS = '"stdout":"3\\n"'

# What a user of the language would do: by bare runsc in the same image.
Plain = collections.namedtuple("Plain", "what command")
PLAIN = {
    "go": Plain("`go run`", """cd /box && cat >main.go <<'END'
%s
END
date +%%s >/tmp/.go-trim
exec /usr/lib/isobox/go/root/bin/go run main.go"""),
    "rust": Plain("`rustc -O` and the program", """cd /box && cat >main.rs <<'END'
%s
END
grep ^-Clink /usr/lib/isobox/rustc.args >/tmp/linker
rustc -O @/tmp/linker -o /tmp/main main.rs && exec /tmp/main"""),
}


def available(site):
    """The languages that the service has and we have a program for."""
    found = site.service.client().get("/runtimes").json()
    names = {r["language"] for r in found}
    return [name for name in HELLO if name in names]


def hello(name):
    return subjects.request(name, HELLO[name]), '"stdout":"hello\\n"'


def plain(service, name):
    if name not in PLAIN:
        return None
    return subjects.BareRunsc(
        service, "plain-" + name, subjects.image_of(name),
        ["/bin/sh", "-c", PLAIN[name].command % HELLO[name].rstrip()],
        b"hello\n", ["HOME=/tmp"])
