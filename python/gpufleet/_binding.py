"""Matches arguments with a kernel's parameters, and makes buffers and launch arguments of them.

Every invalid argument is detected here, before anything is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpufleet._arrays import Like, Unsupported, restore, wire_dtype
from gpufleet._element import Element
from gpufleet._errors import InvalidJob
from gpufleet._lazy import LazyArray
from gpufleet._operand import Operand, operand
from gpufleet._signature import Parameter, Signature
from gpufleet._task import Argument, Buffer, Pointer, ProgressCounter, Ref, Task, Value, Zeros
from gpufleet._wire import DTYPES

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet

__all__ = ["ArgumentError", "Bound", "Output", "bind", "only_read", "scalar_of"]

Array = npt.NDArray[Any]
_NULL = Value(bytes(8), 8)


class ArgumentError(InvalidJob, TypeError):
    """An argument does not fit the kernel's parameter. Nothing was sent."""


@dataclass(slots=True)
class Output:
    """An array that a job returns: the name of its parameter, and of its buffer unless the array has no elements."""

    name: str
    buffer: str | None
    like: Like

    def take(self, results: Mapping[str, Array]) -> Array:
        if self.buffer is None:
            return np.empty(self.like.shape, self.like.dtype)
        return restore(results[self.buffer], self.like)

    def lazy(self, fleet: Fleet, task: Task) -> LazyArray | Array:
        """Returns the array before the task is run. An array without elements needs no task."""
        if self.buffer is None:
            return np.empty(self.like.shape, self.like.dtype)
        return LazyArray(fleet, self.like, Ref(task, self.buffer, self.like.wire_shape, wire_dtype(self.like.dtype)))


@dataclass(slots=True)
class Bound:
    """The arguments of a launch, matched with the parameters."""

    kernel: str
    buffers: dict[str, Buffer] = field(default_factory=dict)
    args: list[Argument] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    values: list[object] = field(default_factory=list)
    """The caller's value for each output."""
    targets: list[Array | None] = field(default_factory=list)
    """The caller's array for each output; `None` if the caller passed none that can be written."""
    _known: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def add_array(self, parameter: Parameter, value: object, given: Operand) -> None:
        """Adds an array. An array that is passed twice becomes one buffer, as it is one piece of memory on a device."""
        name: str | None
        if given.is_empty:
            name = None
            self.args.append(_NULL)
        else:
            name = self._known.setdefault(_place_of(given), parameter.name)
            if name not in self.buffers:
                self.buffers[name] = given.buffer()
            self.args.append(Pointer(name))
        if not parameter.is_input:
            self.outputs.append(Output(parameter.name, name, given.like))
            self.values.append(value)
            self.targets.append(given.array)

    def check_targets(self) -> None:
        """Refuses outputs that can not be written back into the caller's memory."""
        written: list[Array] = []
        for output, target in zip(self.outputs, self.targets, strict=True):
            if target is None or 0 in target.shape:
                continue
            place = f"kernel {self.kernel!r}: the argument for {output.name!r}"
            if not target.flags.writeable:
                raise ArgumentError(f"{place} is read-only, but the kernel writes to it; pass a copy, or use .submit()")
            if _may_overlap_itself(target):
                raise ArgumentError(
                    f"{place} has several elements in one place (strides {target.strides}), so that results would"
                    " overwrite each other; pass numpy.ascontiguousarray(...), or use .submit()"
                )
            if any(_overlap(target, other) for other in written):
                raise ArgumentError(f"{place} overlaps another output; pass a copy, or use .submit()")
            written.append(target)

    def output_buffers(self) -> tuple[str, ...]:
        """Returns the names of the buffers to return, each once."""
        return tuple(dict.fromkeys(output.buffer for output in self.outputs if output.buffer is not None))

    def take(self, results: Mapping[str, Array]) -> list[Array]:
        """Returns the outputs in the caller's types."""
        return [output.take(results) for output in self.outputs]

    def write_back(self, results: Sequence[Array]) -> list[object]:
        """Copies results into the caller's arrays and returns these, with new arrays where the caller passed none."""
        found: list[object] = []
        for value, target, result in zip(self.values, self.targets, results, strict=True):
            if target is not None:
                np.copyto(target, result)
            found.append(result if target is None else value)
        return found


def _place_of(given: Operand) -> tuple[object, ...]:
    """Returns what identifies the memory of an array."""
    array = given.array
    if array is None:
        return (id(given.held),)
    # `array.ctypes.data` has the address too, and takes much longer.
    return (array.__array_interface__["data"], array.shape, array.strides, array.dtype)


def only_read(buffers: Mapping[str, Buffer], outputs: Sequence[str]) -> tuple[str, ...]:
    """Returns the inputs among the buffers of a kernel whose parameters declare what it writes to."""
    return tuple(name for name, buffer in buffers.items() if name not in outputs and not isinstance(buffer, Zeros))


def bind(signature: Signature, args: Sequence[object]) -> Bound:
    """Matches arguments with parameters. Raises `ArgumentError` if one does not fit."""
    bound = Bound(signature.entry)
    if signature.parameters is None:
        for index, value in enumerate(args):
            _bind_untyped(bound, signature, index, value)
        return bound
    _check_count(signature, signature.parameters, args)
    for index, (parameter, value) in enumerate(zip(signature.parameters, args, strict=True)):
        place = _Place(signature.entry, index + 1, parameter)
        if parameter.is_pointer or (parameter.is_word and not isinstance(value, int | np.integer)):
            _bind_pointer(bound, place, parameter, value)
        else:
            bound.args.append(scalar_of(place, parameter.element, value))
    return bound


class _Place(NamedTuple):
    """The position of an argument, as error messages state it."""

    kernel: str
    number: int
    parameter: Parameter

    def __str__(self) -> str:
        return f"kernel {self.kernel!r}, argument {self.number}: parameter {self.parameter}"


def _check_count(signature: Signature, parameters: Sequence[Parameter], args: Sequence[object]) -> None:
    if not isinstance(args, tuple | list):
        raise ArgumentError(
            f"kernel {signature.entry!r}: the arguments are a {type(args).__name__}; pass a tuple, such as (x, y)"
        )
    if len(args) != len(parameters):
        names = ", ".join(parameter.name for parameter in parameters) or "none"
        raise ArgumentError(
            f"kernel {signature.entry!r} takes {len(parameters)} arguments ({names}), but {len(args)} were given"
        )


def _bind_pointer(bound: Bound, place: object, parameter: Parameter, value: object) -> None:
    if value is None:
        bound.args.append(_NULL)
        return
    if isinstance(value, ProgressCounter):
        _check_counter(place, parameter)
        bound.args.append(value)
        return
    try:
        given = operand(value)
    except Unsupported as problem:
        raise ArgumentError(f"{place} takes an array: {problem}") from problem
    element = None if parameter.is_word else parameter.element
    if element is not None:
        _check_dtype(place, element, given.like.dtype, given.wire)
        _check_length(place, element, given.like)
    bound.add_array(parameter, value, given)


def _check_dtype(place: object, element: Element, dtype: np.dtype[Any], wire: str) -> None:
    if element.takes(dtype, wire):
        return
    wanted = DTYPES[element.wire].name if element.wire != "bf16" else "bfloat16"
    if dtype.kind == "c" and element.wire == wire:
        advice = f"pass array.view(numpy.{wanted})"
    else:
        advice = "convert it with ml_dtypes.bfloat16" if wanted == "bfloat16" else f"pass array.astype(numpy.{wanted})"
    raise ArgumentError(f"{place} takes {wanted}, but the array has {dtype.name}; {advice}")


def _check_length(place: object, element: Element, like: Like) -> None:
    count = 1 if like.dtype.kind == "c" else element.count
    if math.prod(like.shape) % count:
        raise ArgumentError(
            f"{place} takes groups of {count} numbers, but the array has {math.prod(like.shape)}; pad it to a multiple"
        )


def _check_counter(place: object, parameter: Parameter) -> None:
    element = parameter.element
    is_number = element is None or (element.wire in ("u64", "i64") and element.count == 1)
    if not parameter.is_word and (parameter.is_input or not is_number):
        raise ArgumentError(f"{place} can not be a progress counter; declare the parameter as unsigned long long *")


def _bind_untyped(bound: Bound, signature: Signature, index: int, value: object) -> None:
    """Matches an argument without a signature. Its type comes from the caller, so a number must have a NumPy type, and
    every array is returned.
    """
    place = f"kernel {signature.entry!r}, argument {index + 1}"
    parameter = Parameter(f"arg{index}", "?", None, is_pointer=True)
    if isinstance(value, ProgressCounter):
        bound.args.append(value)
        return
    if value is None or isinstance(value, np.generic):
        bound.args.append(_NULL if value is None else scalar_of(place, None, value))
        return
    if isinstance(value, int | float | complex):
        raise ArgumentError(
            f"{place}: the signature can not be read ({signature.problem}), so a Python number has no type;"
            f" pass a NumPy scalar, such as numpy.float32({value!r})"
        )
    try:
        given = operand(value)
    except Unsupported as problem:
        raise ArgumentError(f"{place}: {problem}") from problem
    bound.add_array(parameter, value, given)


def scalar_of(place: object, element: Element | None, value: object) -> Value:
    """Makes a kernel argument by value. A Python number takes the parameter's type; a NumPy number must have it."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and element is not None):
        return _numpy_scalar(place, element, np.asarray(value))
    if element is None and isinstance(value, bytes | bytearray) and value:
        return Value(bytes(value), min(len(value) & -len(value), 8))
    if element is None:
        raise ArgumentError(
            f"{place} has a layout that only the compiler knows; pass a NumPy scalar with this layout, or its bytes"
        )
    if not isinstance(value, int | float | complex):
        raise ArgumentError(f"{place} takes a number, but got {type(value).__name__}")
    try:
        return Value(element.pack(value), element.align)
    except ValueError as problem:
        raise ArgumentError(f"{place} takes {problem}, but got {value!r}") from None


def _numpy_scalar(place: object, element: Element | None, value: Array) -> Value:
    data = value.astype(value.dtype.newbyteorder("<"), order="C").tobytes()
    if element is None:
        _refuse_objects(place, value)
        return Value(data, _alignment(value.dtype))
    if value.dtype.kind == "V" and value.dtype.names:
        fits, has = len(data) == element.size, f"{len(data)} bytes"
    else:
        count = element.count // 2 if value.dtype.kind == "c" else element.count
        fits = _takes(element, value.dtype) and value.size == count
        has = f"{value.size} of {value.dtype.name}" if value.size != 1 else value.dtype.name
    if not fits:
        wanted = DTYPES[element.wire].name if element.wire != "bf16" else "bfloat16"
        many = f"{element.count} of " if element.count > 1 else ""
        advice = f"numpy.{wanted}(value)" if not many else f"an array of {element.count} numpy.{wanted}"
        raise ArgumentError(f"{place} takes {many}{wanted}, but got {has}; pass {advice}")
    return Value(data, element.align)


def _takes(element: Element, dtype: np.dtype[Any]) -> bool:
    try:
        return element.takes(dtype, wire_dtype(dtype))
    except Unsupported:
        return False


def _refuse_objects(place: object, value: Array) -> None:
    if value.dtype.hasobject or not value.dtype.itemsize:
        raise ArgumentError(f"{place}: a NumPy scalar of {value.dtype} has no bytes that a kernel can read")


def _alignment(dtype: np.dtype[Any]) -> int:
    """Returns the alignment of a C++ structure with these fields. A packed structure has alignment 1."""
    if dtype.kind == "c":
        return dtype.itemsize
    if dtype.subdtype is not None:
        return _alignment(dtype.subdtype[0])
    if dtype.fields is None:
        return max(dtype.alignment, 1)
    align = max(_alignment(inner[0]) for inner in dtype.fields.values())
    return align if dtype.itemsize % align == 0 else 1


def _may_overlap_itself(array: Array) -> bool:
    """Returns whether two elements may share bytes, judging by the strides alone."""
    reach = array.itemsize
    for stride, extent in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


def _overlap(one: Array, other: Array) -> bool:
    if one.ctypes.data == other.ctypes.data and (one.shape, one.strides) == (other.shape, other.strides):
        return False
    shares_memory: Callable[..., bool] = np.shares_memory
    try:
        # The exact answer can take very long for odd strides.
        return shares_memory(one, other, max_work=1000)
    except np.exceptions.TooHardError:
        return True
