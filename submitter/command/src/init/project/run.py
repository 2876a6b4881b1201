"""Runs the kernel on the fleet, and compares its result with NumPy's."""

from pathlib import Path

import gpufleet as gf
import numpy as np

source = Path(__file__).with_name("KERNEL.cu").read_text()
x = np.full(1024, 4, dtype=np.float32)
y = np.full(1024, 8, dtype=np.float32)

with gf.Fleet() as fleet:
    kernel = fleet.RawKernel(source, "KERNEL")
    result = kernel.submit((4,), (256,), (x, y, 0.25, x.size)).result()

assert np.allclose(result, 0.25 * x + 0.75 * y)
print(result)
