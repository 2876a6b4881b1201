"""Adds two arrays on the GPU with numba-cuda, as a program in a container does."""

import os

import numpy as np
from numba import cuda


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


x = np.arange(1000, dtype=np.float32)
y = cuda.to_device(np.ones_like(x))
saxpy[8, 128](np.float32(2), cuda.to_device(x), y)
assert np.array_equal(y.copy_to_host(), 2 * x + 1)
# The image has nothing but what was copied into it.
print("computed with", *os.listdir("/usr"), "alone, as", os.getuid(), "in", os.getcwd())
