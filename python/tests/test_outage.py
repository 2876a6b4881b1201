"""What futures see of an outage of the broker."""

from __future__ import annotations

import numpy as np

import gpufleet as gf
from gpufleet.testing import LocalFleet

X = np.arange(4, dtype=np.float32)
JOBS = 500
LOG_BYTES = 20_000


def show_logs(fleet: LocalFleet) -> None:
    """Prints the ends of the logs, which the fleet removes."""
    for log in sorted((fleet.folder / "log").glob("*.log")):
        print(f"── {log.name}\n{log.read_text(errors='replace')[-LOG_BYTES:]}")


def test_every_future_has_its_result_though_the_broker_is_killed(own_fleet: LocalFleet) -> None:
    with gf.Fleet(confirm_timeout=120) as fleet:
        saxpy = fleet.kernel("saxpy")
        futures = [saxpy.submit(float(a), X, X) for a in range(JOBS)]
        futures[0].result(timeout=60)
        own_fleet.kill("broker")
        futures += [saxpy.submit(float(a), X, X) for a in range(JOBS, 2 * JOBS)]
        own_fleet.start()
        for a, future in enumerate(futures):
            try:
                result = future.result(timeout=120)
            except gf.WaitTimeout:
                show_logs(own_fleet)
                raise
            np.testing.assert_array_equal(result, (a + 1) * X)
