"""The example notebooks run on the emulated device. Their stored outputs and their pages in `docs/` are current.

`GPUFLEET_GOLDEN=write` writes both.
"""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from notebooks import CELL_SECONDS, UnixKernelManager
from rendering import common, page

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "python/examples"
PAGES = ROOT / "docs/src/clients/notebooks"
IMAGES = ROOT / "docs/src/images/notebooks"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.ipynb"))
WRITES = os.environ.get("GPUFLEET_GOLDEN") == "write"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_gives_its_stored_outputs(name: str, environment: None, tmp_path: Path) -> None:
    path = EXAMPLES / f"{name}.ipynb"
    stored, executed = (nbformat.read(path, as_version=4) for _ in range(2))
    client = NotebookClient(
        executed,
        timeout=CELL_SECONDS,
        record_timing=False,
        resources={"metadata": {"path": str(tmp_path)}},
        kernel_manager_class=UnixKernelManager,
    )
    client.execute()
    if WRITES:
        executed.metadata = stored.metadata
        nbformat.write(executed, path)
        stored = executed
    for before, after in zip(stored.cells, executed.cells, strict=True):
        assert common(before.get("outputs", [])) == common(after.get("outputs", [])), after.source


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_a_notebook_is_current(name: str) -> None:
    text, images = page(name, nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4))
    if WRITES:
        for folder in (PAGES, IMAGES):
            folder.mkdir(exist_ok=True)
        (PAGES / f"{name}.md").write_text(text)
        for file, data in images.items():
            (IMAGES / file).write_bytes(data)
    assert (PAGES / f"{name}.md").read_text() == text
    assert {file.name: file.read_bytes() for file in IMAGES.glob(f"{name}-*.png")} == images
