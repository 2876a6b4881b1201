"""Runs a cell on the machine of a worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from gpufleet._errors import JobFailed
from gpufleet._fleet import Fleet
from gpufleet._printed import print_rest
from gpufleet.notebook._options import CellError
from gpufleet.notebook._remote._code import Code
from gpufleet.notebook._remote._options import RemoteOptions
from gpufleet.notebook._remote._sending import PACKAGE, Sent, send
from gpufleet.notebook._view import View, view_of

if TYPE_CHECKING:
    from gpufleet._program import ProgramFiles, ProgramFuture

__all__ = ["run_cell"]

COMMAND = ("python3", "-m", PACKAGE)
BACK = f"{PACKAGE}/back"
REPORT = f"{BACK}/report.json"
PLOTS = f"module://{PACKAGE}.plots"
"""The backend with which matplotlib shows figures below the cell."""


def run_cell(
    shell: Any, fleet: Fleet, options: RemoteOptions, code: Code, name: str, show: Callable[[View], None]
) -> None:
    """Runs a cell, and shows what it shows. Raises the exception of the cell, or `CellError`."""
    with TemporaryDirectory(prefix="gpufleet-cell-") as folder:
        sent = send(shell, code, options.bytes_max, Path(folder))
        print(sent)
        future = _submit(fleet, options, folder, name)
    future._wait()
    show(view_of(future))
    print_rest(future)
    with TemporaryDirectory(prefix="gpufleet-cell-") as folder:
        _files_of(future).extract(folder)
        report = Path(folder, REPORT)
        if not report.exists():
            # The process of the cell ended before the cell.
            future.result()
        _take(shell, Path(folder, BACK), json.loads(report.read_text()), sent)


def _submit(fleet: Fleet, options: RemoteOptions, folder: str, name: str) -> ProgramFuture:
    return fleet.submit_program(
        COMMAND,
        env=options.env,
        image=options.image,
        variables={"MPLBACKEND": PLOTS},
        upload=[f"{folder}/.", *options.upload],
        download=f"{BACK}/**",
        network=options.network,
        pool=options.pool,
        time_limit=options.time_limit,
        queue_limit=options.queue_limit,
        name=name,
    )


def _files_of(future: ProgramFuture) -> ProgramFiles:
    """Returns what the program left. Raises its exception if it left nothing."""
    error = future.exception()
    program = error.program if isinstance(error, JobFailed) else None
    return future.result().files if program is None else program.files


def _take(shell: Any, folder: Path, report: Mapping[str, Any], sent: Sent) -> None:
    from IPython.display import display  # noqa: PLC0415

    from gpufleet.notebook._remote._receiving import error_of, take  # noqa: PLC0415

    if "refused" in report:
        raise CellError(report["refused"])
    for line in take(shell, folder, report):
        print(line)
    for data in report["shown"]:
        display(data, raw=True)
    if report["error"] is not None:
        raise error_of(shell, folder, report["error"], sent.left_out)
