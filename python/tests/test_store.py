"""Arrays that go through the blob store."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import gpufleet as gf

LARGE = np.arange(1 << 20, dtype=np.float32)


def test_an_array_is_stored_once_for_many_jobs(fleet: gf.Fleet) -> None:
    stored = fleet.put(LARGE)
    assert stored.shape == LARGE.shape and stored.dtype == np.float32
    assert fleet.put(LARGE) == stored
    np.testing.assert_array_equal(stored.get(fleet), LARGE)
    saxpy = fleet.kernel("saxpy")
    futures = [saxpy.submit(float(a), pickle.loads(pickle.dumps(stored)), LARGE) for a in range(3)]
    for a, future in enumerate(futures):
        np.testing.assert_array_equal(future.result(timeout=60), (a + 1) * LARGE)


def test_large_results_are_writable_and_leave_the_store_unchanged(fleet: gf.Fleet) -> None:
    stored = fleet.put(LARGE)
    y = fleet.kernel("saxpy")(0.0, stored, stored)
    np.testing.assert_array_equal(y, LARGE)
    y[:] = 0
    np.testing.assert_array_equal(stored.get(fleet), LARGE)


def test_kernels_only_read_what_is_const(fleet: gf.Fleet) -> None:
    code = r"""
    extern "C" __global__ void reads(const float *x, float *y) { y[0] = x[1]; }
    extern "C" __global__ void writes(const float *x, float *y) { y[0] = const_cast<float *>(x)[1] = 7; }
    extern "C" __global__ void changes(float *x) { x[1] = 7; }
    """
    stored, y = fleet.put(LARGE), np.zeros(1, np.float32)
    module = fleet.RawModule(code=code)
    assert [module.get_function("reads").submit(1, 1, (stored, y)).result(timeout=60)[0] for _ in range(2)] == [1, 1]
    with pytest.raises(gf.KernelFault, match="ILLEGAL_ADDRESS") as fault:
        module.get_function("writes").submit(1, 1, (stored, y)).result(timeout=60)
    assert "read-only" in (fault.value.detail or "")
    source = fault.value.source
    assert source and fault.value.line
    assert "const_cast" in source.text.splitlines()[fault.value.line - source.first_line]
    assert module.get_function("changes").submit(1, 1, (stored,)).result(timeout=60)[1] == 7
    assert module.get_function("reads").submit(1, 1, (stored, y)).result(timeout=60)[0] == 1


def test_a_stored_array_of_the_wrong_type_is_refused(fleet: gf.Fleet) -> None:
    stored = fleet.put(LARGE.astype(np.float64))
    with pytest.raises(TypeError, match="'x' is float64"):
        fleet.kernel("saxpy").submit(1.0, stored, LARGE)


def test_without_a_store_the_error_says_so(fleet: gf.Fleet) -> None:
    with gf.Fleet(fleet._place.url) as without, pytest.raises(gf.StoreFailed, match="this client has none"):
        without.put(LARGE)


def test_an_array_that_is_not_in_the_store_fails_the_read(fleet: gf.Fleet) -> None:
    stored = fleet.put(LARGE)
    missing = gf.RemoteArray(type(stored.stored)("sha256:" + "0" * 64, (4,), "f32"))
    with pytest.raises(gf.StoreFailed, match="0000"):
        missing.get(fleet)
