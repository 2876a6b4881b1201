"""A kernel that takes a fifth of a second for each step, counts its steps and prints them."""

from __future__ import annotations

from typing import Any

import gpufleet as gf

STEPS_A_SECOND = 5
PACED = r"""
__device__ unsigned long long now() {
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}
extern "C" __global__ void paced(unsigned *y, unsigned long long *progress, unsigned steps) {
    for (unsigned step = 1; step <= steps; ++step) {
        for (unsigned long long begin = now(); now() - begin < 200000000ull;) __nanosleep(1000000);
        printf("step %u\n", step);
        atomicAdd(progress, 1ull);
    }
    y[0] = steps;
}
"""


def submit(fleet: gf.Fleet, seconds: int = 4, **options: Any) -> gf.Future[Any]:
    """A job that runs for some seconds, whose result is the number of its steps."""
    steps = seconds * STEPS_A_SECOND
    kernel = fleet.RawKernel(PACED, "paced").options(**options)
    return kernel.submit(1, 1, (gf.zeros(1, "uint32"), gf.ProgressCounter(steps), steps))
