import duckdb
import pyarrow as pa

import gpufleet as gf
from gpufleet.arrow import batch_map
from gpufleet.duckdb import create_function

with gf.Fleet() as fleet, duckdb.connect() as connection:
    saxpy = batch_map(fleet.kernel("saxpy"), ["x", "y"], a=2.0)
    create_function(connection, "saxpy", saxpy, [pa.float32(), pa.float32()])
    rows = connection.sql("SELECT saxpy(price, fee) FROM (VALUES (1::FLOAT, 10::FLOAT), (2, 20)) orders(price, fee)")
    assert rows.fetchall() == [(12,), (24,)]
