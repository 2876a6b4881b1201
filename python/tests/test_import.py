"""What an import costs."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import gpufleet as gf

# They take long to import, and most programs need none of them. NumPy brings none of them either.
SLOW = {"asyncio", "json", "numba", "pyarrow", "socket", "subprocess", "tomllib", "torch"}


def test_an_import_brings_no_slow_module() -> None:
    program = "import sys, gpufleet; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert not SLOW & set(ran.stdout.split())


def test_everything_public_is_listed() -> None:
    own = {name for name, value in vars(gf).items() if not name.startswith("_") and not isinstance(value, ModuleType)}
    public = own | gf._LAZY.keys()
    assert sorted(gf.__all__) == gf.__all__ and set(gf.__all__) == public
    assert all(getattr(gf, name).__name__ == name for name in gf._LAZY)


def test_the_engine_can_be_imported_before_papermill() -> None:
    subprocess.run([sys.executable, "-c", "import gpufleet.notebook.papermill"], check=True)


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [("gpufleet.notebook.papermill", "papermill", "notebook")],
)
def test_without_an_extra_the_error_names_it(module: str, missing: str, extra: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import {module}"
    ran = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert f"install gpufleet[{extra}]" in ran.stderr.splitlines()[-1]
