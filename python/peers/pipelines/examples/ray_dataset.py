import numpy as np
import pyarrow as pa
import ray

import gpufleet as gf
from gpufleet.arrow import batch_map

numbers = np.arange(1000, dtype=np.float32)
dataset = ray.data.from_arrow(pa.table({"price": numbers, "fee": numbers}))

with gf.Fleet() as fleet:
    saxpy = batch_map(fleet.kernel("saxpy"), ["price", "fee"], out="total", a=2.0)
    total = dataset.map_batches(saxpy, batch_format="pyarrow").sum("total")

assert total == 3 * numbers.sum()
