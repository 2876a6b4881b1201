"""Spark data frames: `map_in_arrow` adds the outputs of a kernel as columns. Spark's workers need this package too."""

from __future__ import annotations

from typing import Any

from gpufleet._peer import peer
from gpufleet.arrow import BatchMap

types: Any = peer("pyspark.sql.pandas.types", "spark")

__all__ = ["map_in_arrow"]


def map_in_arrow(frame: Any, mapping: BatchMap) -> Any:
    """Maps a Spark data frame with its method `mapInArrow`, for which it computes the schema of the result."""
    schema = mapping.schema(types.to_arrow_schema(frame.schema))
    return frame.mapInArrow(mapping.batches, types.from_arrow_schema(schema))
