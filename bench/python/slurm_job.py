"""One Slurm job: reads the arrays from the shared folder and writes the result there."""

import os
import sys

import numpy

import work


def main(number, milliseconds):
    x, y = (numpy.load(file(number, name)) for name in "xy")
    result = work.saxpy(number, x, y, milliseconds)
    partial = file(number, "partial")
    numpy.save(partial, result)
    # The submitter never sees half a file.
    os.rename(partial, file(number, "result"))


def file(number, name):
    return os.path.join(os.environ["BENCH_FOLDER"], f"{number}-{name}.npy")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
