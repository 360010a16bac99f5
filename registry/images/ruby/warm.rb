
# An interpreter that isobox-init wants to wait for its program has a descriptor
# more: then what is to be done comes from there.
if Process.ppid == 1
  begin
    control = IO.for_fd(1023, "rb+")
    control.syswrite("ruby\n")
    eval(control.read(Integer(control.gets)), binding)
  rescue Errno::EBADF
  end
end
