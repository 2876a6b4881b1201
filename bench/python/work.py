"""The job that every system runs: y = 2 x + y over a few floats, with other numbers for each job."""

import os
import time

import numpy

FLOATS = int(os.environ["BENCH_FLOATS"])


def arrays(number):
    i = numpy.arange(FLOATS, dtype=numpy.float32)
    return number * 7 + i, number + 3 * i


def saxpy(number, x, y, milliseconds):
    """Runs one job. A job that takes time first records that it runs, and in which process."""
    if milliseconds:
        record_run(number)
        time.sleep(milliseconds / 1000)
    return numpy.float32(2) * x + y


def check(number, result):
    x, y = arrays(number)
    if not numpy.array_equal(result, numpy.float32(2) * x + y):
        raise RuntimeError(f"job {number} was answered with {result}")


def record_run(number):
    # One short write to a file opened for appending is never mixed with another.
    file = os.open(runs_file(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{number} {os.getpid()}\n".encode())
    os.close(file)


def recorded_runs():
    """Job number and process id of each run so far, in the order in which they began."""
    try:
        with open(runs_file()) as file:
            return [tuple(map(int, line.split())) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def runs_file():
    return os.path.join(os.environ["BENCH_FOLDER"], "runs")
