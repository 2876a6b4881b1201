"""Frameworks whose workers are other processes: Spark, Ray and Dask's cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import ray
from distributed import Client
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from spark import java

import gpufleet as gf
from gpufleet.arrow import BatchMap, batch_map
from gpufleet.dask import map_partitions
from gpufleet.spark import map_in_arrow

ROWS = 1000


@pytest.fixture
def saxpy(fleet: gf.Fleet) -> BatchMap:
    return batch_map(fleet.kernel("saxpy"), ["x", "y"], out="sum", a=2.0)


@pytest.fixture
def spark(environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    java(monkeypatch)
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_spark_maps_with_its_workers(spark: SparkSession, saxpy: BatchMap) -> None:
    frame = spark.range(0, ROWS, 1, 4).selectExpr("id", "string(id) AS word", "float(id) AS x", "float(1) AS y")
    mapped = map_in_arrow(frame, saxpy)
    assert [field.simpleString() for field in mapped.schema] == [
        "id:bigint",
        "word:string",
        "x:float",
        "y:float",
        "sum:float",
    ]
    rows = sorted(mapped.collect())
    assert [(row.id, row.word, row.sum) for row in rows] == [
        (number, str(number), 2 * number + 1) for number in range(ROWS)
    ]
    with pytest.raises(PythonException, match="the column 'y' has 1 nulls"):
        map_in_arrow(frame.limit(1).selectExpr("x", "float(NULL) AS y"), saxpy).collect()


@pytest.fixture
def ray_session(environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.filterwarnings("ignore")
def test_ray_maps_with_its_workers(ray_session: None, saxpy: BatchMap) -> None:
    table = pa.table({"id": np.arange(ROWS), "x": np.arange(ROWS, dtype=np.float32), "y": np.ones(ROWS, np.float32)})
    dataset: Any = ray.data.from_arrow(table).repartition(4)
    mapped = dataset.map_batches(saxpy, batch_format="pyarrow").sort("id")
    rows = mapped.take_all()
    assert [(row["id"], row["sum"]) for row in rows] == [(number, 2 * number + 1) for number in range(ROWS)]


@pytest.mark.filterwarnings("ignore")
def test_dask_maps_with_the_workers_of_a_cluster(saxpy: BatchMap) -> None:
    numbers = np.arange(ROWS, dtype=np.float32)
    frame = dd.from_pandas(pd.DataFrame({"x": numbers, "y": numbers}), npartitions=8)
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None):
        mapped = map_partitions(frame, saxpy).compute()
    np.testing.assert_array_equal(mapped["sum"], 3 * numbers)
