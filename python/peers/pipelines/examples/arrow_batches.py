import pyarrow as pa

import gpufleet as gf
from gpufleet.arrow import batch_map

table = pa.table({"id": [1, 2, 3], "x": pa.array([3, 6, None], pa.float32()), "y": pa.array([4, 8, 1], pa.float32())})

with gf.Fleet() as fleet:
    saxpy = batch_map(fleet.kernel("saxpy"), ["x", "y"], out="sum", fill_null=0, a=2.0)
    mapped = saxpy(table)
    assert mapped["sum"].to_pylist() == [10, 20, 1]

    hypot = fleet.ElementwiseKernel("T x, T y", "T length", "length = sqrt(x * x + y * y)", "hypot")
    lengths = batch_map(hypot, ["x", "y"], drop=["x", "y"], fill_null=0)
    assert lengths(table).to_pydict() == {"id": [1, 2, 3], "length": [5, 10, 1]}
