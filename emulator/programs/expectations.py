"""The lists of what is expected to fail, `expected-failures.txt` beside each program, and the comparison with them."""

import os
import sys

LIST = "expected-failures.txt"
# What is expected to fail in a session beside that.
SESSION_LIST = "expected-failures-session.txt"


def read(folder):
    """What is expected to fail, with the reasons."""
    lists = [LIST, SESSION_LIST] if "GPUFLEET_SESSION_SOCKET" in os.environ else [LIST]
    paths = [folder / name for name in lists]
    lines = [line for path in paths if path.exists() for line in path.read_text(encoding="utf-8").splitlines()]
    listed = [line.partition("  # ") for line in lines if line and not line.startswith("#")]
    for name, _, reason in listed:
        if not reason:
            sys.exit(f"error: no reason is given for {name}")
    return {name: reason for name, _, reason in listed}


def compare(outcomes, expected, logs):
    """Writes how the outcomes by name differ from the list; the exit code."""
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    new = sorted(failed - expected.keys())
    mended = sorted(expected.keys() - failed)
    for name in new:
        print(f"new failure: {name}")
    for name in mended:
        print(f"listed, but {outcomes.get(name, 'not there')}: {name}")
    if new:
        print(f"logs: {logs}")
    return int(bool(new or mended))
