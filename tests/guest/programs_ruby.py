# SPDX-License-Identifier: Apache-2.0
"""Ruby programs, as programs_python.py has them."""

RUBY = {
    "arguments": ("p ARGV, ARGV.map(&:encoding), ARGV.map(&:frozen?), $*",
                  {"args": ["", "-x", "a b", "\u00e4\u4e2d", "--"]}),
    "names": "p $0, $PROGRAM_NAME, __FILE__, __dir__, __method__, self,"
             " binding.local_variables, TOPLEVEL_BINDING.local_variables",
    "features": "puts $LOADED_FEATURES, $LOAD_PATH",
    "globals": """p (global_variables - [:$LOADED_FEATURES, :$"]).sort
p $VERBOSE, $DEBUG, $-w, $;, $,, $/, $\\, $., $_, $~, $!, $@, $?
p $stdout.sync, $stderr.sync, $stdin.tty?""",
    "objects": "p Object.constants.sort, ObjectSpace.each_object(IO)"
               ".map { |i| i.fileno rescue nil }.compact.sort",
    "methods": "p Kernel.private_instance_methods(false).sort,"
               " Object.private_instance_methods(false).sort",
    "environment": "p ENV.to_h, Dir.pwd, Process.pid, Process.ppid,"
                   " Process.uid, File.umask, Process.getpgrp == $$",
    "descriptors": """p Dir.children('/proc/self/fd').map(&:to_i).sort
p File.open('/dev/null').fileno""",
    "limits": "%w[NPROC NOFILE FSIZE CORE STACK].each { |n|"
              " p n, Process.getrlimit(n) }",
    "signals": """puts File.readlines('/proc/self/status').grep(/^Sig|Threads|Cap/)
p %w[INT TERM PIPE HUP CHLD].map { |s| [s, trap(s, 'DEFAULT')] }""",
    "threads": "p Thread.list.size, Thread.main == Thread.current,"
               " Thread.current.name",
    "encodings": "p Encoding.default_external, Encoding.default_internal,"
                 " __ENCODING__, $stdout.external_encoding, ''.encoding",
    "stdin": ("p $stdin.gets, gets, STDIN.read", {"stdin": b"a\nb\nc\nd"}),
    "argf": ("p ARGF.read", {"stdin": b"from stdin"}),
    "argf_file": ("p ARGF.read", {"args": ["x.txt"],
                                  "files": [("x.txt", "from a file")]}),
    "data": "p DATA.read, DATA.lineno, DATA.pos, DATA.path\n__END__\n"
            "first\nsecond\n",
    "data_absent": "p defined?(DATA)",
    "shebang": "#!/usr/bin/env ruby -w\nx = 1\np $VERBOSE",
    "shebang_other": "#!/bin/sh\nputs 1",
    "magic": "# frozen_string_literal: true\np 'a'.frozen?",
    "encoding_comment": (b"# encoding: iso-8859-1\np '\xe4'.encoding", {}),
    "bom": (b"\xef\xbb\xbfp 1", {}),
    "begin_end": "END { puts 'end' }\nat_exit { puts 'at exit' }\n"
                 "BEGIN { puts 'begin' }\nputs 'middle'",
    "comment_first": "=begin\ncomment\n=end\np __LINE__",
    "empty": "",
    "one_byte": "1",
    "no_newline": "puts 1",
    "crlf": "puts 1\r\nputs 2\r\n",
    "exit": "exit 7",
    "exit_bang": "at_exit { puts 'no' }; exit! 3",
    "abort": "abort 'a reason'",
    "raise": "def f(n)\n  raise ArgumentError, 'bad' if n.zero?\n"
             "  f(n - 1)\nend\nf(2)",
    "cause": "begin\n  1 / 0\nrescue => e\n  raise 'second'\nend",
    "name_error": "foo = 1\nputs fooo",
    "no_method": "[1].frist",
    "nil_error": "x = { a: nil }\nx[:a][:b]",
    "syntax_error": "puts 1\ndef f\n  if true\nend\n",
    "syntax_error_required": ("require_relative 'x'", {
        "files": [("x.rb", "def f(\n")]}),
    "load_error": "require 'nosuch'",
    "required": ("require_relative 'lib/x'; p X, $LOADED_FEATURES.last",
                 {"files": [("lib/x.rb", "X = __FILE__; puts caller")]}),
    "caller": "def f; puts caller(0); end\nf\np caller_locations(0)",
    "warn": "warn 'careful'; warn 'old', category: :deprecated;"
            " p Warning[:deprecated]",
    "recursion": "def f = f()\nbegin\n  f\nrescue SystemStackError => e\n"
                 "  p e.class, e.message\nend",
    "interrupt": "Process.kill(:INT, $$); sleep 5",
    "terminate": "Process.kill(:TERM, $$); sleep 5",
    "kill": "$stdout.sync = true; puts 1; Process.kill(:KILL, $$)",
    "thread_error": "Thread.new { raise 'in a thread' }.join rescue p $!\n"
                    "Thread.new { raise 'unseen' }; sleep 0.1; puts 'end'",
    "fork": "$stdout.sync = true\npid = fork { puts 'child'; exit 5 }\n"
            "Process.wait pid; p $?.exitstatus",
    "spawn": "puts `ruby -e 'p ARGV, $LOADED_FEATURES.size' a`;"
             " system('ls /proc/self/fd'); p $?.success?",
    "exec": "exec 'ruby', '-e', 'p $0, ARGV', 'x'",
    "random": "p Random.new(1).rand, Kernel.srand.is_a?(Integer)",
    "gems": "p Gem.loaded_specs.keys.sort, defined?(Gem::Specification),"
            " Gem.path; gem 'json'; require 'json'; p [1].to_json",
    "libraries": "require 'set'; require 'json'; require 'time';"
                 " require 'yaml'; p Time.at(0).utc.iso8601,"
                 " { 'a' => 1 }.to_yaml",
    "ractor": "r = Ractor.new { 1 + 1 }; p r.take",
    "fiber": "f = Fiber.new { Fiber.yield 1; 2 }; p f.resume, f.resume",
    "gc": "p GC.stress, GC.disable, GC.enable",
    "command_line": "p File.read('/proc/self/cmdline'),"
                    " File.read('/proc/self/environ')",
    "itself": "puts File.read(__FILE__); p File.stat(__FILE__).size,"
              " File.stat(__FILE__).mode",
}
