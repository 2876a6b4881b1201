"""PyTorch's DataLoader with four workers, whose data sets call kernels of the fleet."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import pytest
import torch
from datasets import WIDTH, Rows, Squared, Stream, row
from torch.utils.data import DataLoader

import gpufleet as gf

WORKERS = 4
ROWS = 64
BATCH = 8
SECONDS = 120
"""The loader raises if a worker gives nothing for so long, so a worker that hangs fails the test."""

# The tests need four workers, also on a machine with fewer cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes:UserWarning")

methods = pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])


def loader(dataset: Any, method: str, **options: Any) -> DataLoader[Any]:
    context = multiprocessing.get_context(method)
    return DataLoader(dataset, num_workers=WORKERS, multiprocessing_context=context, timeout=SECONDS, **options)


@methods
@pytest.mark.parametrize("is_connected", [True, False], ids=["connected", "unconnected"])
def test_items_come_from_four_workers_in_order(fleet: gf.Fleet, method: str, is_connected: bool) -> None:
    if is_connected:
        torch.testing.assert_close(torch.from_numpy(fleet.kernel("saxpy")(1.0, row(0), row(1))), row(0) + row(1))
    items = loader(Rows(fleet, ROWS), method, batch_size=BATCH, persistent_workers=True)
    for _ in range(2):
        seen, processes = [], set()
        for indices, values, pids in items:
            torch.testing.assert_close(values, torch.stack([row(int(index)) for index in indices]))
            seen += indices.tolist()
            processes |= set(pids.tolist())
        assert seen == list(range(ROWS)) and len(processes) == WORKERS


@methods
def test_the_parent_uses_its_fleet_while_workers_do(fleet: gf.Fleet, method: str) -> None:
    saxpy = fleet.kernel("saxpy")
    shuffled = loader(Rows(fleet, ROWS), method, batch_size=BATCH, shuffle=True, drop_last=True)
    seen = []
    for indices, values, _ in shuffled:
        doubled = saxpy(1.0, values.flatten(), values.flatten())
        torch.testing.assert_close(torch.from_numpy(doubled), 2 * values.flatten())
        seen += indices.tolist()
    assert sorted(seen) == list(range(ROWS))


@methods
def test_a_batch_is_made_by_the_collate_function(fleet: gf.Fleet, method: str) -> None:
    batches = list(loader(range(ROWS), method, batch_size=BATCH, collate_fn=Squared(fleet)))
    expected = torch.stack([row(index) for index in range(ROWS)]) ** 2
    torch.testing.assert_close(torch.cat(batches), expected)


@methods
def test_workers_stream_shares_of_the_rows(method: str) -> None:
    rows = torch.cat(list(loader(Stream(ROWS), method, batch_size=BATCH)))
    expected = torch.stack([2 * row(index) for index in range(ROWS)])
    torch.testing.assert_close(rows.sort(dim=0).values, expected)


@methods
def test_an_exception_of_a_worker_arrives_with_its_message(fleet: gf.Fleet, method: str) -> None:
    items = loader(Rows(fleet, ROWS, fails_at=ROWS // 2), method, batch_size=BATCH)
    with pytest.raises(TypeError, match="float64"):
        list(items)
    torch.testing.assert_close(torch.from_numpy(fleet.kernel("saxpy")(1.0, row(0), row(0))), 2 * row(0))


@methods
def test_a_loop_that_stops_early_leaves_no_worker(fleet: gf.Fleet, method: str) -> None:
    iterator = iter(loader(Rows(fleet, 10 * ROWS), method, batch_size=1, prefetch_factor=8))
    next(iterator)
    workers = iterator._workers  # type: ignore[attr-defined]
    del iterator
    for worker in workers:
        worker.join(SECONDS)
        assert worker.exitcode is not None


def test_loaders_in_threads_fork_while_jobs_are_in_flight(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    counts: list[int] = []

    def load() -> None:
        items = loader(Rows(fleet, ROWS), "fork", batch_size=BATCH)
        counts.append(sum(len(indices) for indices, _, _ in items))

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    results = list(saxpy.map([row(index) for index in range(1000)], a=1.0, y=torch.zeros(WIDTH)))
    for thread in threads:
        thread.join(SECONDS)
    assert counts == [ROWS, ROWS]
    assert all((values == row(index).numpy()).all() for index, values in enumerate(results))
