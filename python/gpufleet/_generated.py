"""The common parts of elementwise and reduction kernels, which generate CUDA C++ from short expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpufleet._arrays import Like, wire_dtype
from gpufleet._binding import ArgumentError, Bound, Output, only_read, scalar_of
from gpufleet._device_code import axes, c_type, element, headers, packed_axes
from gpufleet._in_place import InPlaceKernel
from gpufleet._params import Given, Param, given, parse
from gpufleet._task import Argument, Buffer, Launch, Options, Pointer, Section, Source, Task, Value, Zeros

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet

__all__ = ["Code", "GeneratedKernel", "broadcast"]

_INCLUDE = re.compile(r"\s*#\s*include\b")

BLOCK = 256
BLOCKS_MAX = 1 << 16
"""The maximum number of blocks. A kernel loops over the rest."""


@dataclass(slots=True)
class Code:
    """A kernel that is being generated: its C++ parameters with their arguments, and the buffers that these name."""

    kernel: str
    types: Mapping[str, np.dtype[Any]]
    parameters: list[str] = field(default_factory=list)
    args: list[Argument] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    raws: list[str] = field(default_factory=list)
    """The lines that make raw arrays from addresses."""

    def type_of(self, param: Param) -> str:
        """Returns the C++ type of a parameter's elements."""
        return c_type(self.types[param.type])

    def types_used(self) -> list[str]:
        return [c_type(dtype) for dtype in self.types.values()]

    def typedefs(self) -> str:
        """Returns typedefs of the placeholder types."""
        pairs = sorted((name, c_type(dtype)) for name, dtype in self.types.items() if len(name) == 1)
        return "".join([f"typedef {type_} {name};\n" for name, type_ in pairs])

    def add_number(self, param: Param, value: object) -> None:
        place = f"kernel {self.kernel!r}: {param.name!r}"
        self.parameters.append(f"const {self.type_of(param)} {param.name}")
        self.args.append(scalar_of(place, element(self.types[param.type]), value))

    def add_array(self, param: Param, buffer: Buffer, *, is_input: bool) -> None:
        """Adds the address of an array, as the parameter `_x` for an array `x`."""
        self.parameters.append(f"{'const ' if is_input else ''}{self.type_of(param)} *_{param.name}")
        self.buffers[param.name] = buffer
        self.args.append(Pointer(param.name))

    def add_null(self, param: Param) -> None:
        """Adds a null address for an array without elements."""
        self.parameters.append(f"const {self.type_of(param)} *_{param.name}")
        self.args.append(Value(bytes(8), 8))

    def add_raw(self, param: Param, shape: Sequence[int], *, is_input: bool) -> None:
        """Makes a raw array from the address that was added for it."""
        count = self.add_axes(f"_{param.name}_axes", shape, packed_axes(shape, shape))
        type_ = f"_Raw<{'const ' if is_input else ''}{self.type_of(param)}, {count}>"
        self.raws.append(f"const {type_} {param.name} = {{_{param.name}, _{param.name}_axes}};")

    def add_axes(self, name: str, shape: Sequence[int], strides: Sequence[int]) -> int:
        """Adds extents and strides by value. Returns the number of axes."""
        value, count = axes(shape, strides)
        self.parameters.append(f"_Axes<{count}> {name}")
        self.args.append(value)
        return count

    def add_size(self, name: str, size: int) -> None:
        self.parameters.append(f"long long {name}")
        self.args.append(Value(size.to_bytes(8, "little"), 8))


class GeneratedKernel(InPlaceKernel):
    """A kernel whose loop is generated around the caller's expressions."""

    def __init__(
        self,
        fleet: Fleet,
        in_params: str,
        out_params: str,
        name: str,
        preamble: str,
        options: Sequence[str],
        job: Options | None,
    ) -> None:
        job = job or Options()
        super().__init__(fleet, job if job.name else job.replace(name=name))
        self._inputs, self._outputs = parse(in_params), parse(out_params)
        self._name = name
        self._includes, self._declarations = _includes_of(preamble)
        self._compile_options = tuple(options)
        self._check_names()

    @property
    def _entry(self) -> str:
        """The name of the C++ function. It differs from the kernel's name, which may be that of a CUDA function, such
        as `norm`.
        """
        return f"{self._name}_kernel"

    def _check_names(self) -> None:
        names = [param.name for param in (*self._inputs, *self._outputs)]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"kernel {self._name!r} has two parameters named {min(twice)!r}; rename one")
        if not self._outputs:
            raise ValueError(f"kernel {self._name!r} has no output; name one, such as 'T y'")
        if not (self._name.isidentifier() and self._name.isascii()):
            raise ValueError(f"{self._name!r} can not name a kernel; use letters, digits and _")

    def _split(self, args: Sequence[object]) -> tuple[dict[str, Given], dict[str, Given]]:
        """Splits the arguments into inputs and outputs. The outputs may be left out, but only all of them together."""
        counts = (len(self._inputs), len(self._inputs) + len(self._outputs))
        if len(args) not in counts:
            raise ArgumentError(
                f"kernel {self._name!r} takes {counts[0]} inputs, and {len(self._outputs)} outputs if you pass them;"
                f" {len(args)} arguments were given"
            )
        found = {
            param.name: given(self._name, param, value)
            for param, value in zip((*self._inputs, *self._outputs), args, strict=False)
        }
        inputs = {param.name: found.pop(param.name) for param in self._inputs}
        for name, value in found.items():
            if value.array is None:
                raise ArgumentError(f"kernel {self._name!r}: the output {name!r} is a number; pass an array")
        return inputs, found

    def _bind_output(self, bound: Bound, param: Param, passed: Given | None, like: Like) -> Buffer:
        """Registers an output. Returns its buffer, with the caller's elements or zeros."""
        empty = 0 in like.shape
        bound.outputs.append(Output(param.name, None if empty else param.name, like))
        bound.values.append(None if passed is None else passed.value)
        bound.targets.append(None if passed is None or passed.array is None else passed.array.array)
        if passed is not None and passed.array is not None and not empty:
            return passed.array.buffer()
        return Zeros(_wire_shape(like), wire_dtype(like.dtype))

    def _read_input(self, code: Code, param: Param, found: Given) -> tuple[int, ...] | None:
        """Adds an input. Returns its shape if the operation reads it element by element."""
        array = found.array
        if array is None:
            code.add_number(param, found.value)
            return None
        if array.is_empty:
            # A raw array without elements has no address, and the operation can not read it.
            code.add_null(param)
        else:
            code.add_array(param, array.buffer(), is_input=True)
        if param.is_raw:
            code.add_raw(param, array.like.shape, is_input=True)
            return None
        return array.like.shape

    def _task(self, code: Code, bound: Bound, definition: str, grid: int, block: tuple[int, ...], *types: str) -> Task:
        launch = Launch(self._entry, (grid,), block, tuple(code.args))
        outputs = bound.output_buffers()
        shared = only_read(code.buffers, outputs)
        program = self._program(headers((*code.types_used(), *types)), code.typedefs(), definition)
        return Task(program, code.buffers, (launch,), outputs, self._options, shared)

    def _program(self, headers: tuple[str, ...], typedefs: str, definition: str) -> Source:
        section = Section((*headers, *self._includes), f"{typedefs}{self._declarations}\n", definition)
        text = "".join(section.headers) + section.kernel(self._entry)
        # A macro would reach the other kernels of a source.
        can_share = "#" not in self._declarations
        return Source(text, self._compile_options, section if can_share else None)


def _includes_of(preamble: str) -> tuple[tuple[str, ...], str]:
    """Returns the lines that include headers, and the rest. If the lines may depend on others, leaves them in place."""
    lines = preamble.splitlines()
    includes = tuple(f"{line}\n" for line in lines if _INCLUDE.match(line))
    rest = "\n".join(line for line in lines if not _INCLUDE.match(line))
    return ((), preamble) if "#" in rest else (includes, rest)


def _wire_shape(like: Like) -> tuple[int, ...]:
    """Returns the shape of a result in the message. It is flat, because only the number of elements matters there.

    A buffer has at least one element, even for a result without elements.
    """
    elements = max(math.prod(like.shape), 1)
    return (elements, 2) if like.dtype.kind == "c" else (elements,)


def broadcast(kernel: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the shape to which all arrays are broadcast."""
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ArgumentError(f"kernel {kernel!r}: the shapes do not broadcast: {listed}") from None
