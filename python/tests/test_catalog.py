"""Catalog kernels: signatures, calls and arguments that are refused before anything is sent."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import gpufleet as gf
from gpufleet._catalog import _parameters
from gpufleet._core import Parameters

X = np.arange(6, dtype=np.float32)


def test_a_call_returns_what_the_kernel_computes(fleet: gf.Fleet) -> None:
    y = fleet.kernel("saxpy")(a=2.0, x=X, y=np.ones(6, np.float32))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, 2 * X + 1)


def test_several_outputs_are_a_named_tuple(fleet: gf.Fleet) -> None:
    spot, strike, years = (np.full(4, value, np.float32) for value in (100.0, 100.0, 1.0))
    prices = fleet.kernel("black_scholes")(rate=0.05, volatility=0.2, spot=spot, strike=strike, years=years)
    assert prices._fields == ("calls", "puts")
    np.testing.assert_allclose(prices.calls, 10.4506, rtol=1e-4)
    np.testing.assert_allclose(prices.puts, 5.5735, rtol=1e-4)


def test_a_kernel_has_the_signature_of_its_manifest(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    assert list(inspect.signature(saxpy).parameters) == ["a", "x", "y"]
    assert repr(saxpy) == "<gpufleet kernel saxpy(a: float32, x: float32[n], y: float32[n]) -> float32[n]>"
    assert "rounded once" in (inspect.getdoc(saxpy) or "")
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(fleet.kernel("mandelbrot")).parameters.items()
    }
    assert (defaults["width"], defaults["centre_x"]) == (768, -0.5)


def test_a_scalar_with_a_default_may_be_left_out(fleet: gf.Fleet) -> None:
    iterations = fleet.kernel("mandelbrot")(width=8, height=4)
    assert (iterations.shape, iterations.dtype) == ((4, 8), np.uint32)


def test_results_are_writable_and_own_their_memory(fleet: gf.Fleet) -> None:
    y = fleet.kernel("saxpy")(2.0, X, X)
    assert y.flags.writeable and y.flags.aligned and y.flags.c_contiguous
    y += 1
    np.testing.assert_array_equal(y, 3 * X + 1)


def test_views_and_lists_are_taken(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    wide = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(saxpy(1, wide[::2], np.zeros(6, np.float32)), wide[::2])
    np.testing.assert_array_equal(saxpy(1, X.astype(">f4"), [1.0, 1, 1, 1, 1, 1]), X + 1)
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(saxpy(np.float64(1), frozen, frozen), 2 * X)


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"a": 1.0, "x": X}, TypeError, r"saxpy: missing argument 'y'; the signature is saxpy\(a: float32"),
        ({"a": 1.0, "x": X, "y": X, "z": X}, TypeError, "unexpected argument 'z'"),
        (
            {"a": 1.0, "x": X.astype(np.float64), "y": X},
            TypeError,
            r"'x' is float64, but the kernel takes float32\[n\]",
        ),
        ({"a": 1.0, "x": X, "y": X.reshape(2, 3)}, ValueError, "'y' has 2 dimensions"),
        ({"a": "2", "x": X, "y": X}, TypeError, "'a' must be a number, not str"),
        ({"a": 1.0, "x": np.array(3, np.float32), "y": X}, ValueError, "'x' has 0 dimensions"),
        ({"a": 1.0, "x": X.astype(object), "y": X}, TypeError, "'x': dtype object can not be sent"),
        ({"a": 1.0, "x": X, "y": X[:3]}, gf.InvalidJob, "sets n to 3"),
        ({"a": 1.0, "x": X[:0], "y": X[:0]}, gf.InvalidJob, "has no elements"),
    ],
)
def test_wrong_arguments_are_refused_unsent(
    fleet: gf.Fleet, arguments: dict[str, object], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        fleet.kernel("saxpy").submit(**arguments)
    assert fleet._connected().open_futures() == []


@pytest.mark.parametrize(
    ("args", "kwargs", "is_read"),
    [
        ((2.0, X, X), {}, True),
        ((X, X), {"a": np.float64(2.0)}, True),
        ((2, X), {"y": X}, True),
        ((), {"y": X, "x": X, "a": True}, True),
        ((2.0, X), {}, False),
        ((2.0, X, X, X), {}, False),
        ((2.0, X), {"a": 2.0, "z": X}, False),
        ((np.float32(2.0), X, X), {}, False),
        ((2.0, X, np.ma.masked_array(X)), {}, False),
        ((2.0, X, X[::-1]), {}, False),
        ((2.0, X, X.astype(">f4")), {}, False),
        ((2.0, X, X.view(np.int32)), {}, False),
        ((2.0, X, X.reshape(2, 3)), {}, False),
        ((2.0, X, list(X)), {}, False),
    ],
)
def test_only_arguments_that_need_no_conversion_are_read_without_one(
    args: tuple[object, ...], kwargs: dict[str, object], is_read: bool
) -> None:
    arguments = _parameters("saxpy").read(args, kwargs)
    assert (arguments is not None) == is_read
    assert arguments is None or arguments.input_bytes == 2 * X.nbytes


def test_arrays_of_a_dtype_without_one_of_numpy_are_converted() -> None:
    parameters = Parameters("saxpy", ("a", "x", "y"), {})
    assert parameters.read((2.0, X, X), {}) is None


def test_arguments_may_be_given_by_position_and_by_name(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    np.testing.assert_array_equal(saxpy(X, np.ones(6, np.float32), a=3.0), 3 * X + 1)
    np.testing.assert_array_equal(saxpy(3.0, X, y=np.ones(6, np.float32)), 3 * X + 1)
    np.testing.assert_array_equal(saxpy(y=np.ones(6, np.float32), x=X, a=3), 3 * X + 1)


def test_surplus_and_unknown_names_are_refused(fleet: gf.Fleet) -> None:
    with pytest.raises(TypeError, match="too many arguments"):
        fleet.kernel("saxpy").submit(1.0, X, X, X)
    with pytest.raises(ValueError, match="did you mean 'saxpy'"):
        fleet.kernel("saxpi")
    with pytest.raises(TypeError, match="unknown option 'pol'"):
        fleet.kernel("saxpy").options(pol="default")
    with pytest.raises(gf.InvalidJob, match="unknown requirement 'devcie'"):
        fleet.kernel("saxpy").options(requires={"devcie": "H200"}).submit(1.0, X, X)


def test_options_are_those_of_a_copy(fleet: gf.Fleet) -> None:
    saxpy = fleet.kernel("saxpy")
    labelled = saxpy.options(labels={"run": "7"}, time_limit="30s", priority="high", name="scale")
    assert saxpy._options.labels == {}
    assert labelled.options(labels={"step": "1"})._options.labels == {"run": "7", "step": "1"}
    np.testing.assert_array_equal(labelled(1.0, X, X), 2 * X)


def test_a_kernel_can_be_pickled(fleet: gf.Fleet) -> None:
    saxpy = pickle.loads(pickle.dumps(fleet.kernel("saxpy").options(priority="low")))
    np.testing.assert_array_equal(saxpy(1.0, X, X), 2 * X)
    saxpy._fleet.close()
