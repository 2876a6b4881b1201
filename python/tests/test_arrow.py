"""Kernels over columns of Arrow tables: what is sent, what comes back, and functions that other processes get."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from fake_fleet import Array, FakeFleet

import gpufleet as gf
from gpufleet import arrow
from gpufleet._settings import Settings
from gpufleet.arrow import BatchMap, batch_map

X = np.arange(6, dtype=np.float32)
PEERS = {"dask": "dask", "pandas": "pandas", "polars": "polars", "spark": "pyspark"}
"""Modules of the package, and what they need."""


def batch(**more: Any) -> Any:
    """A record batch with an id and two columns for saxpy."""
    return pa.record_batch({"id": list("abcdef"), "x": X, "y": 10 * X, **more})


def add(buffers: dict[str, Array]) -> None:
    buffers["z"][:] = buffers["x"] + buffers["y"]


def adder(fleet: gf.Fleet | None = None, types: tuple[str, str] = ("T", "T")) -> gf.ElementwiseKernel:
    return gf.ElementwiseKernel(fleet or FakeFleet(add), f"{types[0]} x, {types[1]} y", "T z", "z = x + y", "add")


def test_an_output_is_appended_or_replaces_the_column_of_its_name() -> None:
    for out, names in [(None, ["id", "x", "y", "z"]), ("sum", ["id", "x", "y", "sum"]), (["x"], ["id", "x", "y"])]:
        mapped = batch_map(adder(), ["x", "y"], out=out)(batch())
        assert mapped.schema.names == names
        assert mapped.column(out[0] if isinstance(out, list) else out or "z").to_pylist() == (11 * X).tolist()
        assert mapped.column("id").to_pylist() == list("abcdef")


def test_existing_columns_can_be_dropped() -> None:
    cases: list[tuple[Any, list[str]]] = [("x", ["id", "y", "z"]), (["x", "id"], ["y", "z"]), (True, ["z"])]
    for drop, names in cases:
        assert batch_map(adder(), ["x", "y"], drop=drop)(batch()).schema.names == names
    replaced = batch_map(adder(), ["x", "y"], out="x", drop=True)(batch())
    assert replaced.to_pydict() == {"x": (11 * X).tolist()}


def test_the_schema_is_known_before_anything_is_sent() -> None:
    fleet = FakeFleet(add)
    given = batch().schema.with_metadata({"owner": "anna"})
    mapping = batch_map(adder(fleet), ["x", "y"], out="y", drop=["id"])
    schema = mapping.schema(given)
    assert schema == pa.schema({"x": pa.float32(), "y": pa.float32()}) and schema.metadata == {b"owner": b"anna"}
    assert not fleet.tasks
    assert mapping(batch()).schema == schema


@pytest.mark.parametrize("type_", [pa.int8(), pa.uint64(), pa.float16(), pa.float64()])
def test_every_type_of_numbers_comes_back(type_: Any) -> None:
    numbers = pa.array([1, 2, 3], type_)
    mapped = batch_map(adder(), ["n", "n"])(pa.record_batch({"n": numbers}))
    assert mapped.column("z").type == type_ and mapped.column("z").to_pylist() == [2, 4, 6]


def test_slices_chunks_and_tables_are_read() -> None:
    mapping = batch_map(adder(), ["x", "y"])
    assert mapping(batch().slice(2, 3)).column("z").to_pylist() == (11 * X[2:5]).tolist()
    table = pa.concat_tables([pa.table(batch()), pa.table(batch().slice(1, 2))])
    mapped = mapping(table)
    assert isinstance(mapped, pa.Table) and mapped.column("z").to_pylist() == [*(11 * X), *(11 * X[1:3])]


def test_an_empty_batch_needs_no_job() -> None:
    fleet = FakeFleet(add)
    mapped = batch_map(adder(fleet), ["x", "y"])(batch().slice(0, 0))
    assert (mapped.num_rows, mapped.schema.field("z").type, fleet.tasks) == (0, pa.float32(), [])


def test_a_large_batch_is_cut_into_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "ROWS_MAX", 4)
    fleet = FakeFleet(add)
    mapped = batch_map(adder(fleet), ["x", "y"])(batch())
    assert len(fleet.tasks) == 2 and mapped.column("z").to_pylist() == (11 * X).tolist()


def test_arguments_that_are_not_texts_are_passed_as_they_are() -> None:
    mapped = batch_map(adder(types=("T", "float32")), ["x", 2.0], out="x")
    sent = FakeFleet(lambda buffers: buffers["z"].fill(7))
    mapped._kernel._fleet = sent
    assert mapped.columns == ["x"] and mapped(batch()).column("x").to_pylist() == [7] * 6
    assert set(sent.task.buffers) == {"x", "z"}


def test_nulls_are_refused_unless_they_are_filled() -> None:
    holes = batch(x=pa.array([1, None, 3, None, 5, 6], pa.float32()))
    with pytest.raises(ValueError, match=r"the column 'x' has 2 nulls.*give fill_null="):
        batch_map(adder(), ["x", "y"])(holes)
    filled = batch_map(adder(), ["x", "y"], fill_null=-1)(holes)
    assert filled.column("z").to_pylist() == [1, 9, 23, 29, 45, 56]
    assert filled.column("x").null_count == 2
    with pytest.raises(ValueError, match="fill_null does not fit a column of int8"):
        batch_map(adder(), ["n", "n"], fill_null=1.5)(pa.record_batch({"n": pa.array([1, None], pa.int8())}))


def test_not_a_number_is_a_number() -> None:
    mapped = batch_map(adder(), ["x", "y"])(batch(x=np.array([np.nan, 1, 2, 3, 4, 5], np.float32)))
    assert np.isnan(mapped.column("z")[0].as_py()) and mapped.column("z").null_count == 0


def test_wrong_arguments_raise_before_anything_is_sent() -> None:
    fleet = FakeFleet(add)
    kernel = adder(fleet)
    cases: list[tuple[type[Exception], list[str], dict[str, Any], str]] = [
        (ValueError, ["x", "z"], {}, "there is not one column 'z': the batch has id, x, y"),
        (TypeError, ["x", "id"], {}, "the column 'id' is string, and kernels take only numbers"),
        (ValueError, ["x", "y"], {"out": ["a", "b"]}, "has 1 outputs, and out has 2 names"),
        (ValueError, ["x", "y"], {"drop": "z"}, "the column 'z' can not be dropped: the batch has id, x, y"),
        (TypeError, ["x"], {}, "takes 2 inputs"),
    ]
    for error, columns, options, message in cases:
        with pytest.raises(error, match=message):
            batch_map(kernel, columns, **options)(batch())
    with pytest.raises(ValueError, match="two output columns have the same name: a, a"):
        batch_map(kernel, ["x", "y"], out=["a", "a"])
    with pytest.raises(ValueError, match="batch_map needs a column"):
        batch_map(kernel, [1.0, 2.0])
    assert not fleet.tasks


def test_kernels_that_need_other_rows_are_refused() -> None:
    fleet = FakeFleet()
    raw = gf.RawKernel(fleet, 'extern "C" __global__ void f(float *x) {}', "f")
    with pytest.raises(TypeError, match="not a RawKernel; write the computation of one row"):
        batch_map(raw, ["x"])  # type: ignore[arg-type]
    neighbours = gf.ElementwiseKernel(fleet, "raw T x", "T y", "y = x[i]", "neighbours")
    with pytest.raises(TypeError, match="the parameter 'x' is raw"):
        batch_map(neighbours, ["x"])
    for name in ("reduce_sum", "scan_inclusive", "mandelbrot", "nbody_step"):
        kernel = gf.CatalogKernel(fleet, name, gf.RawKernel(fleet, 'extern "C" __global__ void f() {}', "f")._options)
        with pytest.raises(TypeError, match=f"{name} does not compute each row.*black_scholes, saxpy, vector_add"):
            batch_map(kernel, ["x"])


def test_a_kernel_of_the_catalog_takes_columns_by_name_and_scalars(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    for mapping in (
        batch_map(saxpy, ["x", "y"], a=2.0, out="sum"),
        batch_map(saxpy, {"a": 2.0, "y": "y", "x": "x"}, out="sum"),
        batch_map(saxpy, [2.0, "x", "y"], out="sum"),
    ):
        assert mapping(batch()).column("sum").to_pylist() == (12 * X).tolist()
    assert batch_map(saxpy, ["x", "y"], a=2.0)(batch()).schema.names == ["id", "x", "y"]
    with pytest.raises(TypeError, match="'a' is given twice"):
        batch_map(saxpy, {"a": 2.0, "x": "x", "y": "y"}, a=1.0)
    with pytest.raises(TypeError, match="argument 'x' is float64"):
        batch_map(saxpy, ["x", "y"], a=2.0)(batch(x=X.astype(np.float64)))


def test_several_outputs_become_several_columns(fleet: gf.Fleet) -> None:
    prices = fleet.kernel("black_scholes")
    options = pa.record_batch({name: np.ones(3, np.float32) for name in ("spot", "strike", "years")})
    mapping = batch_map(prices, ["spot", "strike", "years"], rate=0.0, volatility=0.2, drop=True)
    mapped = mapping(options)
    assert mapped.schema.names == ["calls", "puts"]
    assert mapped.column("calls").to_pylist() == pytest.approx([0.0796557] * 3, abs=1e-4)
    both = fleet.ElementwiseKernel("T x", "T half, T third", "half = x / 2; third = x / 3", "both")
    assert batch_map(both, "x", out=["h", "t"], drop=True)(batch()).to_pydict() == {
        "h": (X / 2).tolist(),
        "t": (X / 3).tolist(),
    }


def test_a_job_that_fails_raises(fleet: gf.Fleet) -> None:
    wrong = fleet.ElementwiseKernel("T x", "T y", "y = undeclared", "wrong")
    with pytest.raises(gf.CompileError, match="undeclared"):
        batch_map(wrong, ["x"])(batch())


def map_in_child(mapping: BatchMap, number: int) -> tuple[int, int, list[float]]:
    """A worker's process, its fleet, and the result."""
    mapped = mapping(batch(x=np.full(6, number, np.float32)))
    return os.getpid(), id(mapping._kernel._fleet), mapped.column("sum").to_pylist()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_get_the_function_and_connect_once_each(fleet: gf.Fleet, method: str) -> None:
    mapping = batch_map(fleet.kernel("saxpy"), ["x", "y"], a=2.0, out="sum")
    mapping(batch())
    with multiprocessing.get_context(method).Pool(2) as pool:
        done = pool.starmap(map_in_child, [(mapping, number) for number in range(8)], chunksize=1)
    assert [sums for _, _, sums in done] == [(2 * number + 10 * X).tolist() for number in range(8)]
    processes = {process for process, _, _ in done}
    assert os.getpid() not in processes
    assert len({(process, connected) for process, connected, _ in done}) == len(processes)


def test_a_pickle_has_no_password() -> None:
    secret = gf.Fleet.__new__(gf.Fleet)
    secret._begin(Settings("amqp://anna:canary@127.0.0.1:1/"))
    mapping = batch_map(adder(secret), ["x", "y"])
    with pytest.raises(TypeError, match="password") as raised:
        pickle.dumps(mapping)
    assert "canary" not in str(raised.value) + repr(mapping)


@pytest.mark.parametrize("name", PEERS)
def test_a_missing_library_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PEERS[name], None)
    with pytest.raises(ImportError, match=rf"gpufleet\.{name} needs \w+: pip install 'gpufleet\[{name}\]'"):
        importlib.import_module(f"gpufleet.{name}")
