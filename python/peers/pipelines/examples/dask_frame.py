import dask.dataframe as dd
import numpy as np
import pandas as pd

import gpufleet as gf
from gpufleet.arrow import batch_map
from gpufleet.dask import map_partitions

numbers = np.arange(1000, dtype=np.float32)
frame = dd.from_pandas(pd.DataFrame({"price": numbers, "fee": numbers}), npartitions=4)

with gf.Fleet() as fleet:
    saxpy = batch_map(fleet.kernel("saxpy"), ["price", "fee"], out="total", a=2.0)
    total = map_partitions(frame, saxpy)["total"].compute()

assert (total == 3 * numbers).all()
