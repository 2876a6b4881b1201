"""Launches a kernel 100 times, as `cargo xtask emulator-numba --session` counts."""

import sys

import numpy as np
from numba import cuda

LAUNCHES = 100


@cuda.jit
def add(x, y):
    index = cuda.grid(1)
    if index < x.size:
        y[index] += x[index]


def main():
    ones = np.ones(1000, dtype=np.float32)
    x, y = cuda.to_device(ones), cuda.to_device(np.zeros_like(ones))
    for _ in range(LAUNCHES):
        add[8, 128](x, y)
    if not (y.copy_to_host() == LAUNCHES).all():
        sys.exit("error: the sums are wrong")


main()
