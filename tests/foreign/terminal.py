"""Runs a command in a terminal of its own, presses Ctrl-C when it has printed "ready", and prints what it has written.

The command itself is suspended until a process that it has started has printed "interrupted". So a signal that it passes on comes later."""

import os
import pty
import signal
import sys

CTRL_C = b"\x03"

process, terminal = pty.fork()
if process == 0:
    os.execvp(sys.argv[1], sys.argv[1:])

written = b""


def read_until(text):
    global written
    while text not in written:
        written += os.read(terminal, 1 << 16)


read_until(b"ready")
os.kill(process, signal.SIGSTOP)
os.write(terminal, CTRL_C)
read_until(b"interrupted")
os.kill(process, signal.SIGCONT)
try:
    read_until(b"never printed")
except OSError:
    # The last process has closed the terminal.
    pass
sys.stdout.write(written.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
