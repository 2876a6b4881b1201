"""Runs numba-cuda's own tests and compares what fails with `expected-failures.txt`.

Each file of tests has a process of its own, because a fault of a kernel makes the device unusable until the process ends. For
the same reason each test of the list runs alone. Arguments name files to run, as `cudapy/test_print.py`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import expectations
import numba_cuda

HERE = Path(__file__).parent
TESTS = Path(numba_cuda.__file__).parent / "numba" / "cuda" / "tests"
# Benchmarks and tests of numba-cuda's simulator, which has no driver.
OTHER_FOLDERS = {"benchmarks", "cudasim"}
# The longest file takes some minutes.
SECONDS_MAX = 1800
# pytest ends so when all tests passed, some failed, or none was there.
ORDERLY_ENDS = {0, 1, 5}


def main():
    expected = expectations.read(HERE)
    files = sys.argv[1:] or sorted(
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("test_*.py")
        if not OTHER_FOLDERS & set(path.relative_to(TESTS).parts)
    )
    expected = {test: reason for test, reason in expected.items() if test.split("::")[0] in files}
    logs = Path(os.environ["PROGRAM_LOGS"])
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    outcomes = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(lambda tests: run(tests, expected, logs), [*files, *expected]):
            outcomes.update(result)
    sys.exit(report(outcomes, expected, logs))


def run(tests, expected, logs):
    """Runs a file of tests without those of the list, or one of these; the outcome of each test."""
    log = logs / (tests.replace("/", ".").replace("::", ".") + ".log")
    left_out = [] if "::" in tests else expected
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "outcomes"
        written.touch()
        environment = os.environ | {
            "OUTCOMES": str(written),
            "TESTS_LEFT_OUT": "\n".join(left_out),
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        options = ["-p", "outcomes", "-p", "no:cacheprovider", "-q", "-c", os.devnull, f"--rootdir={TESTS}"]
        command = [sys.executable, "-m", "pytest", *options, str(TESTS / tests)]
        with log.open("wb") as output:
            try:
                ended = subprocess.run(
                    command, env=environment, cwd=folder, stdout=output, stderr=output, timeout=SECONDS_MAX, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                ended = "after too long"
        outcomes = {}
        for line in written.read_text(encoding="utf-8").splitlines():
            outcome, _, test = line.partition(" ")
            # A test may be told of twice: what it did, and what its end did.
            outcomes[test] = outcome if outcomes.get(test) != "failed" else "failed"
    if ended not in ORDERLY_ENDS and not ("::" in tests and outcomes):
        outcomes[f"{tests} (the process ended with {ended})"] = "failed"
    return outcomes


def report(outcomes, expected, logs):
    """Writes what came out; the exit code."""
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    counts = [sum(outcome == wanted for outcome in outcomes.values()) for wanted in ("passed", "failed", "skipped")]
    passed, failures, skipped = counts
    share = 100 * passed / max(1, passed + failures)
    print(f"{passed} passed, {failures} failed ({len(failed & expected.keys())} of them expected), {skipped} skipped: ", end="")
    print(f"{share:.1f} % pass")
    return expectations.compare(outcomes, expected, logs)


main()
