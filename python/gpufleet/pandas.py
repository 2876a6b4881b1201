"""The accessor `gpufleet` of pandas data frames. Importing this module registers it.

>>> import gpufleet as gf
>>> import numpy as np
>>> import pandas as pd
>>> import gpufleet.pandas
>>> frame = pd.DataFrame({"x": np.ones(2, np.float32), "y": np.zeros(2, np.float32)})
>>> with gf.Fleet() as fleet:
...     frame.gpufleet.map(fleet.kernel("saxpy"), ["x", "y"], out="sum", a=2.0)["sum"].tolist()
[2.0, 2.0]
"""

from __future__ import annotations

from typing import Any

from gpufleet._frames import map_frame
from gpufleet._peer import peer
from gpufleet.arrow import batch_map

pd: Any = peer("pandas", "pandas")

__all__ = ["FrameAccessor"]


@pd.api.extensions.register_dataframe_accessor("gpufleet")
class FrameAccessor:
    """The methods of `frame.gpufleet`."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def map(self, kernel: Any, columns: Any, **options: Any) -> Any:
        """Returns the frame with the outputs of a kernel as columns. The arguments are those of
        `gpufleet.arrow.batch_map`.
        """
        return map_frame(self._frame, batch_map(kernel, columns, **options))
