# SPDX-License-Identifier: Apache-2.0
#
# What Ruby does to wait for a program: evaluated by the hook in the image
# (registry/images/ruby/warm.rb), whose `control` is the socket to init.  See
# guest/warm.c for what is said.
#
# Ruby has opened the program's file and looked at its first byte already: what
# stood there then is forgotten, and the file read from its beginning.  A first
# line "#!" was to be found by that look, and an empty file has another way: then
# Ruby starts anew in this process.
receive = -> { control.read(Integer(control.gets)).split("\0", -1)[0...-1] }
open_files = ObjectSpace.each_object(File).select do |file|
  !file.closed?
rescue IOError
  false # was never opened
end
entry, *others = open_files

# Nothing can be loaded ahead without a trace in $LOADED_FEATURES.
receive.call.each { |name| control.syswrite("missing #{name}\n") }
exit!(1) if entry.nil? || others.any?
# ending.c is no module of Ruby's, which is found out when it is loaded, by a name
# that one could have.
begin
  File.symlink("/proc/self/fd/1021", "/tmp/ending.so")
  require "/tmp/ending.so"
rescue LoadError
end
File.unlink("/tmp/ending.so")
IO.for_fd(1021).close
control.syswrite("ready\n")
count, *rest = receive.call
args = rest.take(Integer(count)).map do |word|
  word.force_encoding(Encoding.default_external).freeze
end
control.syswrite("go\n")
control.close
entry.rewind
start = entry.read(2)
if start.nil? || start == "#!"
  ruby, *words = File.binread("/proc/self/cmdline").split("\0")
  exec([ruby, ruby], *words, *args)
end
entry.rewind
ARGV.concat(args)
$. = 0 # control.gets counts there
