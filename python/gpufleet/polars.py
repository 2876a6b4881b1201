"""The namespace `gpufleet` of Polars data frames. Importing this module registers it.

>>> import gpufleet as gf
>>> import polars as pl
>>> import gpufleet.polars
>>> frame = pl.DataFrame({"x": [1, 1], "y": [0, 0]}, schema={"x": pl.Float32, "y": pl.Float32})
>>> with gf.Fleet() as fleet:
...     frame.gpufleet.map(fleet.kernel("saxpy"), ["x", "y"], out="sum", a=2.0)["sum"].to_list()
[2.0, 2.0]
"""

from __future__ import annotations

from typing import Any

from gpufleet._peer import peer
from gpufleet.arrow import batch_map

pl: Any = peer("polars", "polars")

__all__ = ["FrameNamespace"]


@pl.api.register_dataframe_namespace("gpufleet")
class FrameNamespace:
    """The methods of `frame.gpufleet`."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def map(self, kernel: Any, columns: Any, **options: Any) -> Any:
        """Returns the frame with the outputs of a kernel as columns. The arguments are those of
        `gpufleet.arrow.batch_map`.
        """
        mapping = batch_map(kernel, columns, **options)
        frame = self._frame
        dropped = mapping.dropped(frame.columns)
        outputs = mapping.outputs(frame.select(mapping.columns).to_arrow())
        return frame.drop(dropped).with_columns(pl.Series(name, values) for name, values in outputs.items())
