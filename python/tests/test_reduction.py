"""Reduction kernels: axes, identities and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from fake_fleet import FakeFleet
from numpy.testing import assert_allclose, assert_array_equal

import gpufleet as gf


def total(fleet: gf.Fleet) -> Any:
    return fleet.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")


def cube() -> Any:
    return (np.arange(2 * 3 * 4 * 5) * 7 % 31).reshape(2, 3, 4, 5)


AXES = [axes for count in range(5) for axes in itertools.combinations(range(4), count)]


@pytest.mark.parametrize("axis", [None, 0, -1, (-1, 0), *AXES])
@pytest.mark.parametrize("keepdims", [False, True])
def test_any_axes_are_reduced(fleet: gf.Fleet, axis: Any, keepdims: bool) -> None:
    assert_array_equal(
        total(fleet)(cube(), axis=axis, keepdims=keepdims), cube().sum(axis=axis, keepdims=keepdims), strict=True
    )


@pytest.mark.parametrize("length", [1, 2, 3, 31, 32, 33, 255, 256, 257, 1000, 5000])
@pytest.mark.parametrize("rows", [1, 3])
def test_any_length_is_reduced(fleet: gf.Fleet, length: int, rows: int) -> None:
    x = np.arange(rows * length).reshape(rows, length)
    assert_array_equal(total(fleet)(x, axis=1), x.sum(axis=1))


def test_many_outputs_are_reduced(fleet: gf.Fleet) -> None:
    x = np.arange(3 * 1000).reshape(3, 1000)
    assert_array_equal(total(fleet)(x, axis=0), x.sum(axis=0))


def test_a_reduction_without_identity_needs_elements(fleet: gf.Fleet) -> None:
    largest = fleet.ReductionKernel("T x", "T y", "x", "a > b ? a : b", "y = a", None, "largest")
    x = -1.0 - np.arange(300).reshape(20, 15)
    assert_array_equal(largest(x, axis=0), x.max(axis=0))
    with pytest.raises(TypeError, match="has no identity, so it can not reduce axes without elements"):
        largest(x[:0], axis=0)
    assert largest(x[:, :0], axis=0).shape == (0,)


def test_axes_without_elements_give_the_identity(fleet: gf.Fleet) -> None:
    product = fleet.ReductionKernel("T x", "T y", "x", "a * b", "y = a", 1, "product")
    assert_array_equal(product(np.zeros((3, 0)), axis=1), np.ones(3))


def test_several_inputs_are_broadcast(fleet: gf.Fleet) -> None:
    dot = fleet.ReductionKernel("T x, T y, T scale", "T z", "x * y * scale", "a + b", "z = a", "0", "dot")
    x, y = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    assert_array_equal(dot(x, y, 2, axis=1), x @ y * 2)


def test_the_map_sees_the_index(fleet: gf.Fleet) -> None:
    weighted = fleet.ReductionKernel("T x, raw T w", "T y", "x * w[i]", "a + b", "y = a", "0", "weighted")
    x, w = np.arange(12.0).reshape(3, 4), np.arange(12.0)[::-1].reshape(3, 4)
    assert_array_equal(weighted(x, w, axis=0), (x * w).sum(axis=0))


def test_another_type_collects_the_values(fleet: gf.Fleet) -> None:
    for reduce_type in ("double", "float64"):
        mean = fleet.ReductionKernel(
            "T x", "float32 y", "x", "a + b", "y = a / _length", "0", "mean", reduce_type=reduce_type
        )
        x = np.full(300, 16777217, np.int64)
        assert_allclose(mean(x), 16777216, rtol=0)


def test_a_structure_collects_the_values(fleet: gf.Fleet) -> None:
    argmax = fleet.ReductionKernel(
        "T x",
        "int64 y",
        "Best(x, i)",
        "a.value >= b.value ? a : b",
        "y = a.index",
        None,
        "argmax",
        reduce_type="Best",
        preamble="""
        struct Best {
            double value; long long index;
            __device__ Best() {}
            __device__ Best(double value, long long index) : value(value), index(index) {}
        };
        """,
    )
    x = np.sin(np.arange(1000.0))
    assert argmax(x) == x.argmax()


def test_complex_sums(fleet: gf.Fleet) -> None:
    x = (np.arange(20) + 1j * np.arange(20)[::-1]).reshape(4, 5)
    assert_allclose(total(fleet)(x, axis=0), x.sum(axis=0))


def test_several_outputs(fleet: gf.Fleet) -> None:
    kernel = fleet.ReductionKernel("T x", "T y, T z", "x", "a + b", "y = a; z = -a", "0", "both")
    y, z = kernel(cube(), axis=(0, 2))
    assert_array_equal(y, cube().sum(axis=(0, 2)))
    assert_array_equal(z, -y)


def test_outputs_are_written_in_place(fleet: gf.Fleet) -> None:
    for passed in ("out", "argument"):
        y = np.zeros(5, np.int64)
        x = cube().reshape(-1, 5)
        result = total(fleet)(x, axis=0, out=y) if passed == "out" else total(fleet)(x, y, axis=0)
        assert result is y
        assert_array_equal(y, x.sum(axis=0))


@pytest.mark.parametrize(
    ("args", "keywords", "message"),
    [
        ((), {}, "takes 1 inputs"),
        ((2,), {}, "no argument has axes to reduce"),
        ((np.zeros(3),), {"axis": 1}, "axis 1 is invalid"),
        ((np.zeros((3, 3)),), {"axis": (0, 0)}, r"axis \(0, 0\) is invalid"),
        ((np.zeros(3),), {"dtype": "f4"}, "unknown argument 'dtype'; use out, axis or keepdims"),
        ((np.zeros(3), np.zeros(3)), {}, r"the output 'y' has the shape \(3,\), but the result has \(\)"),
        ((np.zeros(3), np.zeros(())), {"out": np.zeros(())}, "pass its 1 outputs once"),
        ((np.zeros(3),), {"out": np.zeros((), np.float32)}, "'x' has the dtype float64, but the type T is float32"),
    ],
)
def test_wrong_arguments_are_refused(args: Any, keywords: dict[str, Any], message: str) -> None:
    fleet = FakeFleet()
    with pytest.raises(TypeError, match=message):
        total(fleet).submit(*args, **keywords)
    assert fleet.tasks == []
