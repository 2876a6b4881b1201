"""What an import costs."""

from __future__ import annotations

import subprocess
import sys

import gpufleet as gf

CPU_MILLISECONDS = 60
PROGRAM = """
import time, numpy
begun = time.process_time()
import gpufleet
print((time.process_time() - begun) * 1000)
assert not {"asyncio", "pyarrow", "torch"} & set(__import__("sys").modules), "they take long to import"
"""


def test_an_import_takes_little_time_beyond_numpy() -> None:
    # The quickest of a few, because the first one reads the files and other programs run.
    times = [
        subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True) for _ in range(4)
    ]
    assert min(float(each.stdout) for each in times) < CPU_MILLISECONDS


def test_everything_public_is_listed() -> None:
    public = {name for name in vars(gf) if not name.startswith("_")}
    assert sorted(gf.__all__) == gf.__all__ and set(gf.__all__) == public
