"""A backend of matplotlib, which finds it by MPLBACKEND: figures are shown below the cell."""

from __future__ import annotations

import builtins
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

__all__ = ["FigureCanvas", "show"]


def show(*args: Any, **options: Any) -> None:
    """Shows the open figures, as `pyplot.show` does in a notebook."""
    display: Any = builtins.display  # type: ignore[attr-defined]
    display.figures()
