"""Arrays reach the fleet through every protocol, and come back as themselves."""

from __future__ import annotations

import array
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from protocols import DTYPES, PROTOCOLS, WIRE, Tensor, layouts, read_only

from gpufleet._arrays import Like, Unsupported, as_array, as_input, restore, wire_dtype

CASES = [
    (name, protocol, layout)
    for name, dtype in DTYPES.items()
    for layout, original in layouts(dtype).items()
    for protocol, make in PROTOCOLS.items()
    if make(original) is not None
]
"""Every combination that the protocol can express."""


def bits(values: np.ndarray[Any, Any]) -> bytes:
    """The bytes that a device would get, worked out another way."""
    return b"".join(
        values[index].astype(values.dtype.newbyteorder("<")).tobytes() for index in np.ndindex(values.shape)
    )


@pytest.mark.parametrize(("dtype", "protocol", "layout"), CASES)
def test_every_dtype_layout_and_protocol_is_sent_and_comes_back(dtype: str, protocol: str, layout: str) -> None:
    original = layouts(DTYPES[dtype])[layout]
    value = PROTOCOLS[protocol](original)
    sent = as_input(value)
    assert sent.dtype == wire_dtype(original.dtype)
    assert sent.array.flags.c_contiguous
    assert sent.array.dtype.newbyteorder("<") == sent.array.dtype
    assert sent.array.ndim <= 8
    assert sent.array.tobytes() == bits(original)

    seen = as_array(value)
    result = restore(sent.array, Like.of(seen))
    assert (result.dtype, result.shape) == (original.dtype, original.shape)
    assert result.flags.writeable
    assert bits(result) == bits(original)


def test_the_names_of_the_wire_are_those_of_the_dtypes() -> None:
    assert {name: wire_dtype(dtype) for name, dtype in WIRE.items()} == {name: name for name in WIRE}
    assert [wire_dtype(np.dtype(name)) for name in ("complex64", "complex128")] == ["f32", "f64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_contiguous_little_endian_array_is_not_copied(dtype: str) -> None:
    original = layouts(DTYPES[dtype])["C"]
    for protocol in ("numpy", "buffer", "array_interface", "dlpack"):
        value = PROTOCOLS[protocol](original)
        if value is not None:
            assert np.shares_memory(as_input(value).array, original), protocol


def test_arrow_numbers_are_not_copied() -> None:
    numbers = pa.array([1.0, 2.0, 3.0], type=pa.float32())
    assert as_input(numbers).array.ctypes.data == numbers.buffers()[1].address


def test_a_slice_of_an_arrow_array_and_a_chunked_one_are_read() -> None:
    numbers = pa.array(range(10), type=pa.int32())
    assert as_input(numbers[2:5]).array.tolist() == [2, 3, 4]
    assert as_input(pa.chunked_array([numbers, numbers[:1]])).array.tolist() == [*range(10), 0]
    assert as_input(pa.array([True, False, True])).array.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("value", "dtype", "elements"),
    [
        (b"\x01\x02", "u8", [1, 2]),
        (bytearray(b"\x01\x02"), "u8", [1, 2]),
        (memoryview(b"\x01\x02"), "u8", [1, 2]),
        (array.array("d", [1.5, 2.5]), "f64", [1.5, 2.5]),
        (array.array("h", [-1, 2]), "i16", [-1, 2]),
        (memoryview(array.array("i", [1, 2, 3, 4])).cast("B").cast("i", (2, 2)), "i32", [[1, 2], [3, 4]]),
    ],
)
def test_buffers_keep_their_format(value: object, dtype: str, elements: list[Any]) -> None:
    sent = as_input(value)
    assert (sent.dtype, sent.array.tolist()) == (dtype, elements)


def test_an_object_with_only_an_array_method_is_read() -> None:
    class Series:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.array([1.0, 2.0])

    assert as_input(Series()).array.tolist() == [1.0, 2.0]


def test_numpy_scalars_are_arrays_without_dimensions() -> None:
    sent = as_input(np.float32(2.5))
    assert (sent.dtype, sent.array.shape, float(sent.array)) == ("f32", (), 2.5)


def test_a_tensor_outlives_its_exporter() -> None:
    numbers = np.arange(1000).astype(ml_dtypes.bfloat16)
    seen = as_array(Tensor(numbers.copy()))
    assert bits(seen) == bits(numbers)


def test_a_read_only_result_is_made_writable() -> None:
    result = restore(read_only(np.arange(4, dtype=np.float32)), Like(np.dtype(np.float32), (2, 2)))
    result[0, 0] = 9
    assert result[0, 0] == 9


def test_a_writable_result_is_not_copied() -> None:
    received = np.zeros((4, 2), np.float32)
    assert np.shares_memory(restore(received, Like(np.dtype(np.complex64), (4,))), received)


class OnDevice:
    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}


@pytest.mark.parametrize("value", [OnDevice(), Tensor(np.zeros(2), device=2)])
def test_arrays_of_a_cuda_device_are_refused(value: object) -> None:
    with pytest.raises(Unsupported, match=r"can not read; call \.cpu\(\) first"):
        as_input(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1, "a"], object), "holds Python objects; convert it to numbers"),
        (np.array(["a"]), "holds text; encode it as numbers"),
        (np.array([b"a"]), "holds text"),
        (np.array(["2026-01-01"], "datetime64[s]"), r"have no dates; send the ticks with array.view\(numpy.int64\)"),
        (np.array([1], "timedelta64[s]"), "have no dates"),
        (np.zeros(1, np.longdouble), r"convert it with array.astype\(numpy.float64\)"),
        (np.zeros(1, np.clongdouble), "numpy.complex128"),
        (np.zeros(1, [("x", "f4"), ("y", "f4")]), "is a structure; send each field"),
        (np.zeros(1, ml_dtypes.float8_e4m3fn), r"send the bytes with array.view\(numpy.uint8\)"),
        (pa.array([1, None]), r"has 1 nulls.*fill them first with .fill_null\(0\)"),
        (pa.array(["a"]), "holds Python objects|holds text"),
        (pa.array([[1, 2]]), r"is nested; pass its elements with .flatten\(\)"),
        (array.array("u", "ab"), "holds text|buffer format"),
        ([1.0, 2.0], r"list is not an array; pass a NumPy array, for example numpy.asarray\(value, dtype=...\)"),
        (1.0, "float is not an array"),
        ("text", "str is not an array"),
        (None, "NoneType is not an array"),
    ],
)
def test_what_has_no_numbers_is_refused_with_advice(value: object, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        as_input(value)


def test_a_tensor_that_refuses_to_be_exported_says_why() -> None:
    class Tracked:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

        def __dlpack__(self, **_: object) -> object:
            raise BufferError("it requires gradients; call .detach()")

    with pytest.raises(Unsupported, match=r"through DLPack: it requires gradients; call .detach\(\)"):
        as_input(Tracked())
