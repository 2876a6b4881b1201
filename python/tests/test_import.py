"""What an import costs."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import gpufleet as gf

# They take long to import, and most programs need none of them.
SLOW = {"asyncio", "numba", "pyarrow", "torch"}


def test_an_import_brings_no_slow_module() -> None:
    program = "import sys, gpufleet; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert not SLOW & set(ran.stdout.split())


def test_everything_public_is_listed() -> None:
    public = {
        name for name, value in vars(gf).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert sorted(gf.__all__) == gf.__all__ and set(gf.__all__) == public
