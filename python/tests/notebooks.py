"""Runs cells in a kernel of Jupyter."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager, KernelManager
from nbclient import NotebookClient

from gpufleet.notebook._live import WAITING

CELL_SECONDS = 120


def unix_sockets() -> dict[str, str]:
    """Lets a kernel listen on Unix sockets. Jupyter's TCP ports may be taken before the kernel listens on them."""
    return {"transport": "ipc", "connection_file": f"{tempfile.gettempdir()}/{uuid.uuid4()}.json"}


class UnixKernelManager(AsyncKernelManager):  # type: ignore[misc]
    def __init__(self, **options: Any) -> None:
        super().__init__(**unix_sockets(), **options)


def notebook(*cells: str) -> Any:
    """A notebook with these cells."""
    new = nbformat.v4
    return new.new_notebook(cells=[new.new_code_cell(cell) for cell in cells])


def run(*cells: str, folder: Path, fails: bool = False) -> list[list[Any]]:
    """The outputs of each cell, without what a slow cell shows while it waits. Without `fails`, an error in a cell is
    one here.
    """
    document = notebook(*cells)
    client = NotebookClient(
        document,
        timeout=CELL_SECONDS,
        allow_errors=fails,
        resources=_in(folder),
        kernel_manager_class=UnixKernelManager,
    )
    client.execute()
    return [[output for output in cell.outputs if output.get("metadata") != WAITING] for cell in document.cells]


class Kernel:
    """A kernel that takes one cell after the other, without a notebook."""

    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager(**unix_sockets())
        self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=CELL_SECONDS)

    def begin(self, cell: str) -> str:
        """Sends a cell and does not wait."""
        return str(self.client.execute(cell))

    def end(self, message: str) -> dict[str, Any]:
        """Waits for the reply to a cell."""
        while (reply := self.client.get_shell_msg(timeout=CELL_SECONDS))["parent_header"].get("msg_id") != message:
            pass
        return dict(reply["content"])

    def outputs(self, message: str) -> Iterator[dict[str, Any]]:
        """The messages of a cell, until it has ended."""
        while True:
            found = self.client.get_iopub_msg(timeout=CELL_SECONDS)
            if found["parent_header"].get("msg_id") == message:
                yield found
                if found["content"].get("execution_state") == "idle":
                    return

    def run(self, cell: str) -> None:
        reply = self.end(self.begin(cell))
        assert reply["status"] == "ok", "\n".join(reply.get("traceback", []))

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@contextmanager
def running(folder: Path) -> Iterator[Kernel]:
    kernel = Kernel(folder)
    try:
        yield kernel
    finally:
        kernel.close()


def text(outputs: list[Any]) -> str:
    """What a cell printed or showed, as plain text. A slow cell prints in several messages, which are one text here."""
    groups = groupby(outputs, lambda output: output.name if output.output_type == "stream" else id(output))
    return "\n".join("".join(map(_text, group)) for _, group in groups)


def html(outputs: list[Any]) -> str:
    return "\n".join(output.data["text/html"] for output in outputs if "text/html" in output.get("data", {}))


def _text(output: Any) -> str:
    match output.output_type:
        case "stream":
            return str(output.text)
        case "error":
            return "\n".join(output.traceback)
        case _:
            return str(output.data.get("text/plain", ""))


def _in(folder: Path) -> dict[str, Any]:
    return {"metadata": {"path": str(folder)}}
