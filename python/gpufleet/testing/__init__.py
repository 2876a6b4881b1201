"""Private fleets with the emulated device for tests.

The fixtures of pytest are `gpufleet_local`, `fleet` and `gpufleet_faults`. Other programs use `local_fleet`:

>>> import gpufleet as gf
>>> from gpufleet.testing import local_fleet
>>> with local_fleet(), gf.Fleet() as fleet:  # doctest: +SKIP
...     fleet.kernel("saxpy")
"""

from gpufleet.testing._local import LocalFleet, LocalFleetError, local_fleet

__all__ = ["LocalFleet", "LocalFleetError", "local_fleet"]
