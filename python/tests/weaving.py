"""Notebooks that other authors wrote, with cells of ours between their cells."""

from __future__ import annotations

import copy
from collections import defaultdict
from pathlib import Path
from typing import Any

import nbformat
import papermill
from ledger import jobs
from notebooks import UnixKernelManager

OURS = "of_ours"
"""The key in the metadata of our cells."""
NUMBERS = "import numpy as numpy_of_ours\nnumbers_of_ours = numpy_of_ours.arange(4, dtype='f4')"
KERNEL = """%%gpu
extern "C" __global__ void doubled_of_ours(const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}"""
USE = (
    "assert doubled_of_ours(1, 4, (numbers_of_ours, numpy_of_ours.zeros(4, 'f4'), 4)).tolist() == [0.0, 2.0, 4.0, 6.0]"
)


def woven(document: Any, *first: str) -> Any:
    """The notebook with a kernel defined at its start, and used after each of its code cells.

    `first` are more cells of ours, before its first cell.
    """
    result = copy.deepcopy(document)
    begin = ("%load_ext gpufleet", NUMBERS, KERNEL, *first)
    result.cells = [_ours(document, source, "begin") for source in begin]
    for cell in copy.deepcopy(document.cells):
        result.cells.append(cell)
        if cell.cell_type == "code":
            result.cells.append(_ours(document, USE, "use"))
    return result


def execute(document: Any, folder: Path, engine: str | None, **options: Any) -> Any:
    """Runs a notebook with an engine of papermill; `None` is papermill's own."""
    source = folder / "in.ipynb"
    nbformat.write(document, source)
    return papermill.execute_notebook(
        source,
        folder / "out.ipynb",
        engine_name=engine,
        kernel_name="python3",
        cwd=folder,
        progress_bar=False,
        kernel_manager_class=UnixKernelManager,
        **options,
    )


def uses(document: Any) -> list[tuple[int, Any]]:
    """Our cells that run a job, with their indices."""
    return [(index, cell) for index, cell in enumerate(document.cells) if cell.metadata.get(OURS) == "use"]


def launched(run: str) -> list[dict[str, Any]]:
    """The jobs of a run that launched a kernel. The job that compiles our cell does not."""
    return [job for job in jobs(run) if job["kernel"]]


def shown(document: Any) -> list[tuple[str, Any]]:
    """The source and the outputs of each code cell that is not ours, without what differs from run to run."""
    theirs = [cell for cell in document.cells if cell.cell_type == "code" and OURS not in cell.metadata]
    return [(cell.source, _outputs(cell)) for cell in theirs]


def _ours(document: Any, source: str, kind: str) -> Any:
    cell = nbformat.v4.new_code_cell(source, metadata={OURS: kind})
    if (document.nbformat, document.nbformat_minor) < (4, 5):
        del cell["id"]
    return cell


def _outputs(cell: Any) -> dict[str, Any]:
    found: dict[str, Any] = defaultdict(str)
    for output in cell.outputs:
        match output.output_type:
            case "stream":
                found[output.name] += output.text
            case "error":
                found["error"] += f"{output.ename}: {output.evalue}"
            case _:
                found["shown"] += output.data.get("text/plain", "")
    return dict(found)
