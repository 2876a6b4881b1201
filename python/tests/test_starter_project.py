"""The Python script of a project that `gpufleet init` writes runs as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def test_the_script_of_a_new_project_runs_its_kernel(environment: None, tmp_path: Path) -> None:
    command = shutil.which("gpufleet", path=os.environ.get("GPUFLEET_BIN_DIR"))
    assert command
    subprocess.run([command, "init", "blend"], cwd=tmp_path, check=True)
    run = subprocess.run(
        [sys.executable, "blend/run.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("[7. 7."), run.stdout
