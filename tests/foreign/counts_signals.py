"""Counts its interrupts until a second after the number that it is given, prints how many there were, and exits with 3."""

import signal
import sys

INTERRUPT = {signal.SIGINT}

signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPT)
print("ready", flush=True)
count = 0
while count < int(sys.argv[1]):
    signal.sigwait(INTERRUPT)
    count += 1
    print("interrupted", flush=True)
while signal.sigtimedwait(INTERRUPT, 1):
    count += 1
print(f"{count} in all", flush=True)
sys.exit(3)
