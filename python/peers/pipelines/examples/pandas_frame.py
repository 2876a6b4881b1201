import numpy as np
import pandas as pd

import gpufleet as gf
import gpufleet.pandas

frame = pd.DataFrame({"price": np.float32([1, 2, 3]), "fee": np.float32([10, 20, 30])}, index=["a", "b", "c"])

with gf.Fleet() as fleet:
    frame = frame.gpufleet.map(fleet.kernel("saxpy"), ["price", "fee"], out="total", a=2.0)

assert frame["total"].to_dict() == {"a": 12, "b": 24, "c": 36}
