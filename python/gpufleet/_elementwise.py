"""Elementwise kernels in CuPy's form: an expression for one element, which is applied to broadcast arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpufleet._arrays import Like
from gpufleet._binding import ArgumentError, Bound
from gpufleet._device_code import packed_axes
from gpufleet._generated import BLOCK, BLOCKS_MAX, Code, GeneratedKernel, broadcast
from gpufleet._params import Given, Param, resolve
from gpufleet._task import Buffer, Options, Task

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet

__all__ = ["ElementwiseKernel"]


class ElementwiseKernel(GeneratedKernel):
    """A kernel that computes each element of its outputs from the elements of its inputs.

    Parameters are written like `"T x, raw float32 y"`. A single letter is a type that the arguments determine. A `raw`
    array is indexed by the operation itself; other arrays are broadcast. The operation can use `i`, the index of the
    element, and `n` or `_ind.size()`, the number of elements. For a raw array it can use `size()`, `shape()` and
    `ndim`.

    A call takes the inputs, and optionally arrays for the outputs. If all arrays are raw, it needs `size=`, the number
    of elements. Invalid arguments raise `InvalidJob`, and nothing is sent.
    """

    def __init__(
        self,
        fleet: Fleet,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        *,
        options: Sequence[str] = (),
        loop_prep: str = "",
        after_loop: str = "",
        job: Options | None = None,
    ) -> None:
        super().__init__(fleet, in_params, out_params, name, preamble, options, job)
        self._operation = operation
        self._no_return = no_return
        self._return_tuple = return_tuple
        self._loop_prep = loop_prep
        self._after_loop = after_loop

    def _packed(self, names: Sequence[str], values: Sequence[Any]) -> Any:
        if self._no_return:
            return None
        return tuple(values) if self._return_tuple else super()._packed(names, values)

    def _bind(
        self, *args: object, size: int | None = None, block_size: int = BLOCK, **unknown: Any
    ) -> tuple[Task, Bound]:
        if unknown:
            raise ArgumentError(f"kernel {self._name!r}: unknown argument {min(unknown)!r}; use size or block_size")
        inputs, outputs = self._split(args)
        types = resolve(self._name, (*self._inputs, *self._outputs), outputs, inputs)
        shape = self._shape(inputs, outputs, size)
        code, bound = Code(self._name, types), Bound(self._name)
        loads = [self._add_input(code, param, inputs[param.name], shape) for param in self._inputs]
        for param in self._outputs:
            passed = outputs.get(param.name)
            like = Like(types[param.type], shape) if passed is None or passed.array is None else passed.array.like
            loads.append(self._add_output(code, param, self._bind_output(bound, param, passed, like), like))
        elements = math.prod(shape)
        code.add_size("_size", elements)
        blocks = min(-(-elements // block_size), BLOCKS_MAX)
        definition = self._definition(code, loads)
        return self._task(code, bound, definition, max(blocks, 1), (block_size,)), bound

    def _shape(self, inputs: dict[str, Given], outputs: dict[str, Given], size: int | None) -> tuple[int, ...]:
        """Returns the shape of the loop: that of the broadcast arrays, or `size`."""
        looped = {
            param.name: array.like.shape
            for param in (*self._inputs, *self._outputs)
            if not param.is_raw
            and (found := {**inputs, **outputs}.get(param.name))
            and (array := found.array) is not None
        }
        if size is not None:
            if looped:
                raise ArgumentError(f"kernel {self._name!r}: size is for kernels whose arrays are all raw; remove it")
            return (size,)
        if not looped and any(param.is_raw for param in (*self._inputs, *self._outputs)):
            raise ArgumentError(
                f"kernel {self._name!r}: all arrays are raw; pass size=, the number of elements to loop over"
            )
        shape = broadcast(self._name, looped) if looped else ()
        for param in self._outputs:
            if param.name in looped and looped[param.name] != shape:
                raise ArgumentError(
                    f"kernel {self._name!r}: the output {param.name!r} has the shape {looped[param.name]}, but"
                    f" the arguments broadcast to {shape}; pass an array of that shape"
                )
        return shape

    def _add_input(self, code: Code, param: Param, found: Given, shape: tuple[int, ...]) -> str:
        """Adds an input. Returns the line that reads it in the loop, or an empty text if the loop does not read it."""
        type_, own = code.type_of(param), self._read_input(code, param, found)
        if own is None:
            return ""
        if own == shape:
            return f"const {type_} {param.name} = _{param.name}[i];"
        code.add_axes(f"_{param.name}_axes", shape, packed_axes(shape, own))
        return f"const {type_} {param.name} = _{param.name}[_{param.name}_axes.at(i)];"

    def _add_output(self, code: Code, param: Param, buffer: Buffer, like: Like) -> str:
        code.add_array(param, buffer, is_input=False)
        if param.is_raw:
            code.add_raw(param, like.shape, is_input=False)
            return ""
        return f"{code.type_of(param)} &{param.name} = _{param.name}[i];"

    def _definition(self, code: Code, loads: Sequence[str]) -> str:
        body = "\n        ".join(line for line in loads if line)
        raws = "\n    ".join(code.raws)
        return (
            f"({', '.join(code.parameters)}) {{\n"
            "    const _Indexer _ind = {_size};\n"
            "    const long long n = _size;\n"
            f"    {raws}\n"
            f"    {self._loop_prep};\n"
            "    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;"
            " i += (long long)gridDim.x * blockDim.x) {\n"
            f"        {body}\n"
            f"        {self._operation};\n"
            "    }\n"
            f"    {self._after_loop};\n"
            "}\n"
        )
