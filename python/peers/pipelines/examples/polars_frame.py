import polars as pl

import gpufleet as gf
import gpufleet.polars

frame = pl.DataFrame({"price": [1, 2, 3], "fee": [10, 20, 30]}, schema={"price": pl.Float32, "fee": pl.Float32})

with gf.Fleet() as fleet:
    frame = frame.gpufleet.map(fleet.kernel("saxpy"), ["price", "fee"], out="total", a=2.0)

assert frame["total"].to_list() == [12, 24, 36]
