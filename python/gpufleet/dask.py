"""Dask data frames: `map_partitions` adds the outputs of a kernel as columns. Dask's workers need this package too."""

from __future__ import annotations

from typing import Any

from gpufleet._frames import map_frame
from gpufleet._peer import peer
from gpufleet.arrow import BatchMap

utils: Any = peer("dask.dataframe.utils", "dask")

__all__ = ["map_partitions"]


def map_partitions(frame: Any, mapping: BatchMap) -> Any:
    """Maps each partition of a Dask data frame. Nothing is sent until Dask computes the result."""
    meta = map_frame(utils.make_meta(frame), mapping)
    return frame.map_partitions(map_frame, mapping, meta=meta)
