"""Data frames of pandas, which Dask uses too."""

from __future__ import annotations

from typing import Any

from gpufleet._peer import peer
from gpufleet.arrow import BatchMap

pa: Any = peer("pyarrow", "arrow")


def map_frame(frame: Any, mapping: BatchMap) -> Any:
    """Returns the frame with the outputs of a kernel as columns. NaN is a number for kernels; `pandas.NA` is a null."""
    names = list(frame.columns)
    dropped = mapping.dropped(names)
    read = [name for name in mapping.columns if name in names]
    arrays = [pa.array(frame[name], from_pandas=False) for name in read]
    return frame.drop(columns=dropped).assign(**mapping.outputs(pa.table(arrays, names=read)))
