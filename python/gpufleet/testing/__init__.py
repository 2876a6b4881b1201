"""Private fleets with the emulated device for tests.

The fixtures of pytest are `gpufleet_local`, `fleet` and `gpufleet_faults`. Other programs use `local_fleet`.
"""

from gpufleet.testing._local import LocalFleet, LocalFleetError
from gpufleet.testing._shared import local_fleet

__all__ = ["LocalFleet", "LocalFleetError", "local_fleet"]
