"""Reduction kernels in CuPy's form: elements are mapped and combined along axes, and the results are mapped again."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpufleet._arrays import Like
from gpufleet._binding import ArgumentError, Bound
from gpufleet._device_code import c_type, packed_axes
from gpufleet._generated import BLOCK, BLOCKS_MAX, Code, GeneratedKernel, broadcast
from gpufleet._params import Given, Param, dtype_named, given, resolve
from gpufleet._task import Options, Task

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet

__all__ = ["ReductionKernel"]

Array = npt.NDArray[Any]
_INDEX = re.compile(r"\bi\b")


@dataclass(frozen=True, slots=True)
class _Shape:
    """The axes of the broadcast inputs: the kept ones and the reduced ones."""

    whole: tuple[int, ...]
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    keepdims: bool

    @property
    def result(self) -> tuple[int, ...]:
        if self.keepdims:
            return tuple(1 if axis in self.reduced else extent for axis, extent in enumerate(self.whole))
        return self.extents(self.kept)

    def extents(self, axes: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.whole[axis] for axis in axes)

    @property
    def outputs(self) -> int:
        return math.prod(self.extents(self.kept))

    @property
    def length(self) -> int:
        return math.prod(self.extents(self.reduced))


class ReductionKernel(GeneratedKernel):
    """A kernel that reduces axes of its inputs.

    `map_expr` makes a value of each element, `reduce_expr` combines the values `a` and `b`, and `post_map_expr` writes
    the output from the result `a`. `identity` is the result for axes without elements. `map_expr` can also use `i`, the
    index of the element in C order.

    A call takes `axis`, by default all axes, `keepdims`, and `out` for an array to write to. Invalid arguments raise
    `InvalidJob`, and nothing is sent.
    """

    def __init__(
        self,
        fleet: Fleet,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: str | float | None,
        name: str = "reduce_kernel",
        reduce_type: str | None = None,
        reduce_dims: bool = True,
        preamble: str = "",
        options: Sequence[str] = (),
        *,
        job: Options | None = None,
    ) -> None:
        super().__init__(fleet, in_params, out_params, name, preamble, options, job)
        self._map, self._reduce, self._post = map_expr, reduce_expr, post_map_expr
        self._identity = None if identity is None or identity == "" else str(identity)
        self._reduce_type = reduce_type

    def _bind(
        self,
        *args: object,
        out: object = None,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        **unknown: Any,
    ) -> tuple[Task, Bound]:
        if unknown:
            raise ArgumentError(f"kernel {self._name!r}: unknown argument {min(unknown)!r}; use out, axis or keepdims")
        inputs, outputs = self._split(args)
        if out is not None:
            outputs = self._with_out(outputs, out)
        types = resolve(self._name, (*self._inputs, *self._outputs), outputs, inputs)
        shape = self._shape(inputs, axis, keepdims)
        code, bound = Code(self._name, types), Bound(self._name)
        loads = [self._add_input(code, param, inputs[param.name], shape) for param in self._inputs]
        stores = [self._add_output(code, bound, param, outputs.get(param.name), shape) for param in self._outputs]
        if shape.outputs and not shape.length and self._identity is None:
            raise ArgumentError(f"kernel {self._name!r} has no identity, so it can not reduce axes without elements")
        self._add_shape(code, shape)
        # Each row of a block reduces one output; a row is no wider than the work for it.
        width = min(BLOCK, 1 << (max(shape.length, 1) - 1).bit_length())
        rows = BLOCK // width
        blocks = min(-(-shape.outputs // rows), BLOCKS_MAX)
        definition = self._definition(code, loads, stores, rows, width)
        return self._task(code, bound, definition, max(blocks, 1), (width, rows), self._value_type(code)), bound

    def _with_out(self, outputs: dict[str, Given], out: object) -> dict[str, Given]:
        values = out if isinstance(out, tuple | list) else (out,)
        if outputs or len(values) != len(self._outputs):
            raise ArgumentError(
                f"kernel {self._name!r}: pass its {len(self._outputs)} outputs once, as out or as arguments"
            )
        return {param.name: given(self._name, param, value) for param, value in zip(self._outputs, values, strict=True)}

    def _shape(self, inputs: dict[str, Given], axis: int | Sequence[int] | None, keepdims: bool) -> _Shape:
        looped = {
            param.name: array.like.shape
            for param in self._inputs
            if not param.is_raw and (array := inputs[param.name].array) is not None
        }
        if not looped:
            raise ArgumentError(f"kernel {self._name!r}: no argument has axes to reduce; pass an array that is not raw")
        whole = broadcast(self._name, looped)
        reduced = self._axes(len(whole), axis)
        kept = tuple(index for index in range(len(whole)) if index not in reduced)
        return _Shape(whole, kept, reduced, keepdims)

    def _axes(self, ndim: int, axis: int | Sequence[int] | None) -> tuple[int, ...]:
        if axis is None:
            return tuple(range(ndim))
        try:
            return tuple(sorted(np.lib.array_utils.normalize_axis_tuple(axis, ndim)))
        except ValueError as problem:
            raise ArgumentError(f"kernel {self._name!r}: axis {axis!r} is invalid: {problem}") from None

    def _add_input(self, code: Code, param: Param, found: Given, shape: _Shape) -> str:
        """Adds an input. Returns the line that reads its element `_j` for the output `_o`."""
        own = self._read_input(code, param, found)
        if own is None:
            return ""
        strides = packed_axes(shape.whole, own)
        return f"const {code.type_of(param)} {param.name} = _{param.name}[{_place(code, param.name, shape, strides)}];"

    def _add_output(self, code: Code, bound: Bound, param: Param, passed: Given | None, shape: _Shape) -> str:
        like = Like(code.types[param.type], shape.result)
        if passed is not None and passed.array is not None:
            if passed.array.like.shape != shape.result:
                raise ArgumentError(
                    f"kernel {self._name!r}: the output {param.name!r} has the shape {passed.array.like.shape}, but the"
                    f" result has {shape.result}; pass an array of that shape"
                )
            like = passed.array.like
        code.add_array(param, self._bind_output(bound, param, passed, like), is_input=False)
        if param.is_raw:
            code.add_raw(param, like.shape, is_input=False)
            return ""
        return f"{code.type_of(param)} &{param.name} = _{param.name}[_o];"

    def _add_shape(self, code: Code, shape: _Shape) -> None:
        code.add_size("_outputs", shape.outputs)
        code.add_size("_length", shape.length)
        if _INDEX.search(self._map):
            _place(code, "i", shape, packed_axes(shape.whole, shape.whole))

    def _definition(self, code: Code, loads: Sequence[str], stores: Sequence[str], rows: int, width: int) -> str:
        index = "const long long i = _i_kept.at(_o) + _i_reduced.at(_j);" if _INDEX.search(self._map) else ""
        load = "\n            ".join(line for line in (index, *loads) if line)
        store = "\n            ".join(line for line in stores if line)
        raws = "\n    ".join(code.raws)
        return f"""\
({", ".join(code.parameters)}) {{
    typedef {self._value_type(code)} _Value;
    __shared__ __align__(16) unsigned char _bytes[{rows * width} * sizeof(_Value)];
    _Value *_row = reinterpret_cast<_Value *>(_bytes) + threadIdx.y * {width};
    const int _lane = threadIdx.x;
    const int _lanes = _length < {width} ? (int)_length : {width};
    {raws}
    const long long _step = (long long)gridDim.x * {rows};
    for (long long _first = (long long)blockIdx.x * {rows}; _first < _outputs; _first += _step) {{
        const long long _o = _first + threadIdx.y;
        const bool _has_work = _o < _outputs && _lane < _lanes;
        for (long long _j = _lane; _has_work && _j < _length; _j += {width}) {{
            {load}
            const _Value b = static_cast<_Value>({self._map});
            if (_j == _lane) {{
                _row[_lane] = b;
            }} else {{
                const _Value a = _row[_lane];
                _row[_lane] = static_cast<_Value>({self._reduce});
            }}
        }}
        __syncthreads();
        for (int _half = {width // 2}; _half > 0; _half /= 2) {{
            if (_has_work && _lane < _half && _lane + _half < _lanes) {{
                const _Value a = _row[_lane];
                const _Value b = _row[_lane + _half];
                _row[_lane] = static_cast<_Value>({self._reduce});
            }}
            __syncthreads();
        }}
        if (_o < _outputs && _lane == 0) {{
            {self._finish()}
            {store}
            {self._post};
        }}
        __syncthreads();
    }}
}}
"""

    def _finish(self) -> str:
        """Returns the code that makes `a` of the identity and the lanes' results."""
        if self._identity is None:
            return "_Value a = _row[0];"
        return (
            f"_Value a = _Value({self._identity});\n"
            "            if (_lanes > 0) {\n"
            "                const _Value b = _row[0];\n"
            f"                a = static_cast<_Value>({self._reduce});\n            }}"
        )

    def _value_type(self, code: Code) -> str:
        """Returns the type of `a` and `b`: that of the first output, or else `reduce_type`.

        `reduce_type` is a placeholder, a dtype or a C++ type.
        """
        named = self._reduce_type
        if named is None:
            return code.type_of(self._outputs[0])
        if named in code.types:
            return c_type(code.types[named])
        try:
            return c_type(dtype_named(named))
        except ValueError:
            return named


def _place(code: Code, name: str, shape: _Shape, strides: Sequence[int]) -> str:
    """Adds the strides of an array. Returns the expression for the position of an element."""
    for part, axes in (("kept", shape.kept), ("reduced", shape.reduced)):
        code.add_axes(f"_{name}_{part}", shape.extents(axes), [strides[axis] for axis in axes])
    return f"_{name}_kept.at(_o) + _{name}_reduced.at(_j)"
