"""Frames in this process: pandas, Polars, DuckDB, and Dask with threads and with processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import dask
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import gpufleet as gf
import gpufleet.pandas
import gpufleet.polars
from gpufleet.arrow import BatchMap, batch_map
from gpufleet.dask import map_partitions
from gpufleet.duckdb import create_function

X = np.arange(1000, dtype=np.float32)


@pytest.fixture
def saxpy(fleet: gf.Fleet) -> BatchMap:
    return batch_map(fleet.kernel("saxpy"), ["x", "y"], out="sum", a=2.0)


def test_a_pandas_frame_keeps_its_index_and_types(fleet: gf.Fleet) -> None:
    index = pd.MultiIndex.from_product([["a", "b"], range(500)])
    frame = pd.DataFrame({"word": ["w"] * 1000, "x": X, "y": X, "when": pd.Timestamp("2026-01-01")}, index=index)
    mapped = frame.gpufleet.map(fleet.kernel("saxpy"), ["x", "y"], out="sum", drop="y", a=2.0)
    pd.testing.assert_frame_equal(mapped, frame.drop(columns="y").assign(sum=3 * X))
    mapped.loc[("a", 0), "sum"] = 7
    replaced = frame.gpufleet.map(fleet.kernel("saxpy"), ["x", "y"], a=2.0)
    pd.testing.assert_frame_equal(replaced, frame.assign(y=3 * X))


def test_nan_of_pandas_is_a_number_and_na_is_a_null(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    frame = pd.DataFrame({"x": np.array([1, np.nan], np.float32), "y": pd.array([pd.NA, 1], "Float32")})
    with pytest.raises(ValueError, match="the column 'y' has 1 nulls"):
        frame.gpufleet.map(saxpy, ["x", "y"], a=1.0)
    mapped = frame.gpufleet.map(saxpy, ["x", "y"], out="sum", fill_null=5, a=1.0)
    np.testing.assert_array_equal(mapped["sum"], np.array([6, np.nan], np.float32))
    with pytest.raises(ValueError, match="there is not one column 'z'"):
        frame.gpufleet.map(saxpy, ["x", "z"], a=1.0)


def test_a_polars_frame_keeps_its_other_columns(fleet: gf.Fleet) -> None:
    frame = pl.DataFrame({"word": ["w"] * 1000, "x": X, "y": X, "some": [[1, 2]] * 1000})
    mapped = frame.gpufleet.map(fleet.kernel("saxpy"), ["x", "y"], out="sum", drop=["y"], a=2.0)
    assert mapped.equals(frame.drop("y").with_columns(sum=pl.Series(3 * X)))
    holes = pl.DataFrame({"x": [1.0, None], "y": [1.0, 1.0]}, schema={"x": pl.Float32, "y": pl.Float32})
    with pytest.raises(ValueError, match="the column 'x' has 1 nulls"):
        holes.gpufleet.map(fleet.kernel("saxpy"), ["x", "y"], a=2.0)
    filled = holes.gpufleet.map(fleet.kernel("saxpy"), ["x", "y"], fill_null=0, a=2.0)
    assert filled["y"].to_list() == [3, 1]
    with pytest.raises(TypeError, match="the column 'word' is large_string"):
        frame.gpufleet.map(fleet.kernel("saxpy"), ["x", "word"], a=2.0)


def test_a_function_of_duckdb_takes_columns_and_nulls(fleet: gf.Fleet) -> None:
    saxpy = batch_map(fleet.kernel("saxpy"), ["x", "y"], a=2.0)
    with duckdb.connect() as connection:
        create_function(connection, "saxpy", saxpy, [pa.float32(), pa.float32()])
        rows = connection.sql("SELECT i, saxpy(i::FLOAT, 1::FLOAT) FROM range(5000) numbers(i) ORDER BY i").fetchall()
        assert rows == [(number, 2 * number + 1) for number in range(5000)]
        holes = connection.sql("SELECT saxpy(x, 1::FLOAT) FROM (VALUES (1::FLOAT), (NULL), (3)) numbers(x)")
        assert holes.fetchall() == [(3,), (None,), (7,)]
        prices = batch_map(fleet.kernel("black_scholes"), ["s", "k", "t"], rate=0.0, volatility=0.2)
        with pytest.raises(ValueError, match="a function of SQL has one result, and the kernel has 2 outputs"):
            create_function(connection, "prices", prices, [pa.float32()] * 3)
        with pytest.raises(TypeError, match="DuckDB has no type for halffloat"):
            halves = fleet.ElementwiseKernel("float16 x", "float16 y", "y = x")
            create_function(connection, "halves", batch_map(halves, ["x"]), [pa.float16()])


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_maps_each_partition_when_it_computes(saxpy: BatchMap, fleet: gf.Fleet, scheduler: str) -> None:
    frame = dd.from_pandas(pd.DataFrame({"word": ["w"] * 1000, "x": X, "y": X}), npartitions=5)
    lazy = map_partitions(frame, saxpy)
    assert list(lazy.columns) == ["word", "x", "y", "sum"] and lazy.dtypes["sum"] == np.float32
    with dask.config.set(scheduler=scheduler, num_workers=2):
        mapped = lazy.compute()
    np.testing.assert_array_equal(mapped["sum"], 3 * X)
    assert (mapped["word"] == "w").all()


def test_duckdb_reads_an_export_of_the_ledger(fleet: gf.Fleet, environment: None, tmp_path: Path) -> None:
    for _ in range(3):
        fleet.kernel("saxpy")(X, X, a=2.0)
    gpufleet = shutil.which("gpufleet", path=os.environ.get("GPUFLEET_BIN_DIR"))
    assert gpufleet
    exported = tmp_path / "jobs.parquet"
    columns = "state, kernel, kernel_us, created_at, labels['run']"
    query = f"SELECT {columns} FROM '{exported}' WHERE state = 'succeeded'"
    deadline = time.monotonic() + 60
    while True:
        subprocess.run([gpufleet, "export", "--out", exported, "--kernel", "saxpy"], check=True)
        with duckdb.connect() as connection:
            rows = connection.sql(query).fetchall()
        # The recorder may lag behind.
        if len(rows) >= 3:
            break
        assert time.monotonic() < deadline, rows
    assert {row[1] for row in rows} == {"saxpy"}
    assert all(row[2] > 0 and row[3].tzinfo is not None and row[4] is None for row in rows)
