import os, sys
def receive():
    return control.read(int(control.readline()))
names = receive()
os.write(1023, b"ready\n")
words = receive().decode().split("\0")
args = words[1:1 + int(words[0])]
sys.argv += args
sys.orig_argv += args
os.write(1023, b"go\n")
os.close(1023)
