"""Data sets for PyTorch's loader, whose items a kernel of the fleet computes. Its workers import this module."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import gpufleet as gf

WIDTH = 16
SQUARES = r"""
extern "C" __global__ void squares(const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
"""


def row(index: int) -> torch.Tensor:
    """The row that the data set has at an index."""
    return torch.arange(WIDTH, dtype=torch.float32) + index


class Rows(Dataset[Any]):
    """Rows that a kernel of the catalog computes when the loader asks for one. The kernel came from the parent."""

    def __init__(self, fleet: gf.Fleet, count: int, fails_at: int | None = None) -> None:
        self.saxpy = fleet.kernel("saxpy")
        self.count = count
        self.fails_at = fails_at

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, int]:
        x = torch.arange(WIDTH, dtype=torch.float32)
        y = torch.full((WIDTH,), float(index), dtype=torch.float64 if index == self.fails_at else torch.float32)
        return index, torch.from_numpy(self.saxpy(1.0, x, y)), os.getpid()


class Stream(IterableDataset[Any]):
    """A share of the rows for each worker, by a fleet that the worker makes itself."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        assert worker is not None
        indices = range(worker.id, self.count, worker.num_workers)
        with gf.Fleet() as fleet:
            for values in fleet.kernel("saxpy").map([row(index) for index in indices], a=2.0, y=torch.zeros(WIDTH)):
                yield torch.from_numpy(values)


class Squared:
    """Makes a batch on the fleet: all rows of the batch are sent together."""

    def __init__(self, fleet: gf.Fleet) -> None:
        self.kernel = fleet.RawKernel(SQUARES, "squares")

    def __call__(self, indices: Sequence[int]) -> torch.Tensor:
        zeros = gf.zeros(WIDTH, np.float32)
        jobs = ((1, WIDTH, (row(index), zeros, WIDTH)) for index in indices)
        return torch.stack([torch.from_numpy(values) for values in self.kernel.starmap(jobs)])
