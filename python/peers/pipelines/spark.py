"""Spark on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest


def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets what Spark needs from its environment, and fails without Java."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin/java").exists() if home else shutil.which("java") is not None
    if not found:
        pytest.fail(
            "Spark needs Java 17 or later, in JAVA_HOME or on PATH; install it, for example with"
            " apt-get install openjdk-17-jre-headless",
            pytrace=False,
        )
    # Spark's workers are other processes, of the Python that is first on PATH.
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dspark.ui.enabled=false")
