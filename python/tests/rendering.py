"""A notebook as a page of the documentation, and what two executions of it have in common."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from gpufleet.notebook._live import WAITING

HEAD = """\
<!-- Generated from python/examples/{name}.ipynb. To write it anew:
GPUFLEET_GOLDEN=write cargo xtask python python/tests/test_examples.py -->
<!-- page not executed: the tests of the Python package execute the notebook -->
"""
IMAGES = "../../images/notebooks"

_CHANGING = (
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "JOB"),
    (re.compile(r"gpufleet emulator \([^)]*\)"), "EMULATOR"),
    (re.compile(r"gpufleet-w\d+"), "WORKER"),
    (re.compile(r"\x1b\[[\d;]*m"), ""),
    # A step that is too short for the bar has no part of it.
    (re.compile(r'<div title="\w+" style="flex:[^"]*"></div>\n'), ""),
    (re.compile(r"\d+(?:\.\d+)? (?:µs|ms|s)\b"), "TIME"),
    (re.compile(r", (?:queue|fetch|compile|copy|kernel) TIME"), ""),
)
_COLOUR = _CHANGING[3][0]


def common(outputs: list[Any]) -> list[Any]:
    """The outputs of a cell without what differs from run to run: times, ids and the kind of the CPU."""
    return [_common(output) for output in outputs if output.get("metadata") != WAITING]


def page(name: str, notebook: Any) -> tuple[str, dict[str, bytes]]:
    """The page, and its images by file name."""
    images: dict[str, bytes] = {}
    parts = [HEAD.format(name=name)]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            language = "cpp" if cell.source.startswith("%%gpu") and "--python" not in cell.source else "python"
            parts.append(_fenced(language, cell.source))
            parts += [part for output in cell.outputs for part in _shown(name, output, images)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n", images


def _common(output: Any) -> Any:
    match output.output_type:
        case "stream":
            return output.name, _without(output.text)
        case "error":
            return output.ename, _without(output.evalue)
        case _:
            return {kind: _without(value) for kind, value in sorted(output.data.items())}


def _without(text: str) -> str:
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return text


def _shown(name: str, output: Any, images: dict[str, bytes]) -> Iterator[str]:
    match output.output_type:
        case "stream":
            yield _fenced("text", output.text)
        case "error":
            yield _fenced("text", _error(output))
        case _ if "image/png" in output.data:
            file = f"{name}-{len(images) + 1}.png"
            images[file] = base64.b64decode(output.data["image/png"])
            yield f"![]({IMAGES}/{file})"
        case _ if "text/html" in output.data:
            yield output.data["text/html"]
        case _:
            yield _fenced("text", output.data["text/plain"])


def _error(output: Any) -> str:
    """A short traceback whole; of a long one the last line says enough."""
    if any("Traceback" in line for line in output.traceback):
        return f"{output.ename}: {output.evalue}"
    return _COLOUR.sub("", "\n".join(output.traceback))


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.strip(chr(10))}\n```"
