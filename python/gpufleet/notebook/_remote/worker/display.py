"""What a cell shows: values as notebooks show them, and figures of matplotlib."""

from __future__ import annotations

import base64
import io
import sys
from typing import Any

__all__ = ["Display"]

REPRESENTATIONS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "application/json": "_repr_json_",
}
CANARY = "_repr_of_no_object_"
"""An object that has this method has every method, so its representations mean nothing."""


class Display:
    """The values that the cell has shown, as data by MIME type."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    def __call__(self, *values: object, **options: object) -> None:
        """Shows values, like IPython's `display`. They appear when the cell has ended."""
        self.shown += [_data(value) for value in values]

    def figures(self) -> None:
        """Shows the open figures of matplotlib and closes them."""
        helpers: Any = sys.modules.get("matplotlib._pylab_helpers")
        if helpers is not None:
            for manager in helpers.Gcf.get_all_fig_managers():
                self(manager.canvas.figure)
            helpers.Gcf.destroy_all()


def _data(value: object) -> dict[str, Any]:
    data = {} if isinstance(value, type) or hasattr(value, CANARY) else _representations(value)
    if _is_figure(value):
        data["image/png"] = _encoded(_png(value))
    data.setdefault("text/plain", repr(value))
    return data


def _representations(value: object) -> dict[str, Any]:
    bundle = _call(value, "_repr_mimebundle_")
    # It may come with metadata.
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle
    found = {kind: _call(value, method) for kind, method in REPRESENTATIONS.items()} | dict(bundle or {})
    return {kind: _encoded(data) for kind, data in found.items() if data is not None}


def _call(value: object, method: str) -> Any:
    """Calls a method of representation. One that fails is no reason to show nothing."""
    try:
        result = getattr(value, method)()
    except Exception:
        return None
    return result[0] if isinstance(result, tuple) and method != "_repr_mimebundle_" else result


def _encoded(data: Any) -> Any:
    return base64.b64encode(data).decode() if isinstance(data, bytes) else data


def _is_figure(value: object) -> bool:
    figure: Any = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(value, figure.Figure)


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()
