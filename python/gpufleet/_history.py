"""Reads the jobs that the ledger has recorded, with the command `gpufleet`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpufleet._errors import HistoryError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["History", "read_history"]

DATABASE_URL = "GPUFLEET_DATABASE_URL"


class History(list[dict[str, Any]]):
    """Recorded jobs, newest first. Each is a dictionary with the keys of `gpufleet history -o json`."""

    def to_frame(self) -> pd.DataFrame:
        """Returns the jobs as a pandas DataFrame, in which times are timestamps in UTC. Raises `ImportError` without
        pandas.
        """
        try:
            import pandas as pd  # noqa: PLC0415
        except ImportError as problem:
            raise ImportError("a DataFrame needs pandas; install it with: pip install pandas") from problem
        frame = pd.DataFrame(self)
        for name in frame.columns:
            if name.endswith("_at"):
                frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
        return frame


def read_history(
    *,
    states: Iterable[str],
    kernel: str | None,
    pool: str | None,
    since: str | None,
    labels: Mapping[str, str],
    limit: int,
    is_local: bool,
) -> History:
    """Runs `gpufleet history` and reads its output. Raises `HistoryError` if it is missing or fails."""
    import json  # noqa: PLC0415
    import shutil  # noqa: PLC0415
    import subprocess  # noqa: PLC0415

    command = shutil.which("gpufleet", path=os.environ.get("GPUFLEET_BIN_DIR"))
    if command is None:
        raise HistoryError("the command gpufleet reads the ledger, and is not on PATH; install it on this machine")
    if not is_local and not os.environ.get(DATABASE_URL):
        raise HistoryError(f"the ledger of this fleet is not known; set {DATABASE_URL}")
    arguments = ["history", "--output", "json", f"--limit={limit}"]
    arguments += [f"--state={state}" for state in states]
    given = {"--kernel": kernel, "--pool": pool, "--since": since}
    arguments += [f"{option}={value}" for option, value in given.items() if value is not None]
    arguments += [f"--label={key}={value}" for key, value in labels.items()]
    run = subprocess.run([command, *arguments], check=False, capture_output=True, text=True)
    if run.returncode:
        raise HistoryError(f"{Path(command).name} history failed: {run.stderr.strip()}")
    return History(json.loads(run.stdout))
