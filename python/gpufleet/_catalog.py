"""The kernels of the catalog, with signatures from their manifests."""

from __future__ import annotations

import dataclasses
import inspect
from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpufleet import _core
from gpufleet._arrays import Like
from gpufleet._kernel import Kernel, Prepared
from gpufleet._lazy import LazyArray
from gpufleet._operand import operand
from gpufleet._task import Buffer, Catalog, Ref, Task
from gpufleet._wire import DTYPES

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet
    from gpufleet._future import Outputs
    from gpufleet._task import Options


_NUMBERS = (int, float)
_PLAIN = (list, tuple, *_NUMBERS)
"""The types of values that have no dtype of their own."""


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A scalar of a kernel."""

    name: str
    dtype: str
    default: int | float | bool | None
    description: str | None


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A buffer of a kernel."""

    name: str
    role: Literal["in", "inout", "out", "scratch"]
    dtype: str
    shape: tuple[str, ...]
    description: str | None

    @property
    def is_given(self) -> bool:
        return self.role in ("in", "inout")

    @property
    def is_returned(self) -> bool:
        return self.role in ("inout", "out")

    @property
    def form(self) -> str:
        """The dtype and extents of the buffer, such as ``float32[m, k]``."""
        return f"{DTYPES[self.dtype].name}[{', '.join(self.shape)}]"


@dataclass(frozen=True)
class Manifest:
    """A kernel's entry in the catalog."""

    name: str
    summary: str
    formula: str
    scalars: tuple[ScalarSpec, ...]
    buffers: tuple[BufferSpec, ...]

    @cached_property
    def given(self) -> tuple[BufferSpec, ...]:
        return tuple(buffer for buffer in self.buffers if buffer.is_given)

    @cached_property
    def outputs(self) -> tuple[BufferSpec, ...]:
        return tuple(buffer for buffer in self.buffers if buffer.is_returned)

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether element i of each output depends only on the elements i of the inputs, judging by the shapes."""
        shapes = {buffer.shape for buffer in self.buffers}
        return bool(self.given) and len(shapes) == 1 and len(self.given[0].shape) == 1

    @cached_property
    def signature(self) -> inspect.Signature:
        """The Python signature: scalars, then arrays. Parameters with a default come last."""
        parameters = [_scalar_parameter(scalar) for scalar in self.scalars]
        parameters += [_parameter(buffer.name, buffer.form) for buffer in self.given]
        parameters.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
        returned = ", ".join(buffer.form for buffer in self.outputs)
        return inspect.Signature(parameters, return_annotation=returned)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, in order."""
        return tuple(self.signature.parameters)

    @cached_property
    def name_set(self) -> frozenset[str]:
        """The names of the parameters, for comparisons."""
        return frozenset(self.names)

    @cached_property
    def required(self) -> frozenset[str]:
        parameters = self.signature.parameters.items()
        return frozenset(name for name, parameter in parameters if parameter.default is inspect.Parameter.empty)

    @cached_property
    def text(self) -> str:
        """The signature as text for people."""
        return f"{self.name}{self.signature}".replace("'", "")

    @cached_property
    def result_type(self) -> type[tuple[Any, ...]]:
        """The named tuple type for several outputs."""
        return namedtuple(f"{self.name}_result", [buffer.name for buffer in self.outputs])


@cache
def manifests() -> dict[str, Manifest]:
    """Returns all kernels of the catalog by name."""
    return {
        name: Manifest(
            name,
            summary,
            formula,
            tuple(ScalarSpec(*scalar) for scalar in scalars),
            tuple(BufferSpec(name, role, dtype, tuple(shape), text) for name, role, dtype, shape, text in buffers),
        )
        for name, summary, formula, scalars, buffers in _core.kernels()
    }


@cache
def _parameters(name: str) -> _core.Parameters:
    """The reader of a kernel's arguments that need no conversion. `_bind` reads any arguments, and reports what is
    wrong.
    """
    # An array with the bits of bfloat16 has the dtype of another number.
    dtypes = {wire: dtype for wire, dtype in DTYPES.items() if wire != "bf16"}
    return _core.Parameters(name, manifests()[name].names, dtypes)


class CatalogKernel(Kernel[Any]):
    """A kernel of the catalog. Its result is an array, or a named tuple if the kernel has several outputs."""

    def __init__(self, fleet: Fleet, name: str, options: Options) -> None:
        super().__init__(fleet, options)
        manifest = manifests().get(name)
        if manifest is None:
            close = get_close_matches(name, manifests(), 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; the kernels are {', '.join(manifests())}"
            raise ValueError(f"the catalog has no kernel {name!r}{hint}")
        self._name = name
        self._finish = _Finish(name)

    @property
    def __name__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return _documentation(self._manifest)

    @property
    def __signature__(self) -> inspect.Signature:
        return self._manifest.signature

    @property
    def _outputs(self) -> tuple[str, ...]:
        return tuple(output.name for output in self._manifest.outputs)

    @property
    def _manifest(self) -> Manifest:
        return manifests()[self._name]

    def __repr__(self) -> str:
        return f"<gpufleet kernel {self._manifest.text}>"

    def lazy(self, *args: Any, **kwargs: Any) -> Any:
        task = self._task(args, kwargs)
        shapes = _core.shapes(task)
        task = dataclasses.replace(task, outputs=self._outputs)
        arrays = {}
        for name in self._outputs:
            dtype, extents = shapes[name]
            shape = tuple(extents)
            arrays[name] = LazyArray(self._fleet, Like(DTYPES[dtype], shape), Ref(task, name, shape, dtype))
        return self._finish(arrays)

    def _prepare(self, *args: Any, **kwargs: Any) -> Prepared[Any]:
        arguments = _parameters(self._name).read(args, kwargs)
        if arguments is None:
            return Prepared(self._task(args, kwargs), self._finish)
        return Prepared(Task(arguments, {}, (), (), self._options), self._finish)

    def _task(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Task:
        manifest = self._manifest
        arguments = _bind(manifest, args, kwargs)
        numbers = {
            scalar.name: _number(manifest, scalar.name, arguments[scalar.name])
            for scalar in manifest.scalars
            if scalar.name in arguments
        }
        buffers = {spec.name: _buffer(manifest, spec, arguments[spec.name]) for spec in manifest.given}
        task = Task(Catalog(self._name, numbers), buffers, (), (), self._options)
        return dataclasses.replace(task, outputs=self._outputs) if task.has_refs else task


class _Finish:
    """Makes the result of a kernel's outputs. All futures of a kernel share it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, outputs: Outputs) -> Any:
        if len(outputs) == 1:
            return next(iter(outputs.values()))
        return manifests()[self._name].result_type(**outputs)


def _bind(manifest: Manifest, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments by name.

    Positional arguments take the parameters that are not given by name, so that `map` can fix any of them.
    """
    free = [name for name in manifest.names if name not in kwargs] if kwargs else manifest.names
    arguments = {**dict(zip(free, args, strict=False)), **kwargs}
    if len(args) <= len(free) and manifest.required <= arguments.keys() <= manifest.name_set:
        return arguments
    problem = "too many arguments"
    if surplus := [name for name in kwargs if name not in manifest.names]:
        problem = f"unexpected argument {surplus[0]!r}"
    elif missing := [name for name in manifest.names if name in manifest.required - arguments.keys()]:
        problem = f"missing argument {missing[0]!r}"
    raise TypeError(f"{manifest.name}: {problem}; the signature is {manifest.text}")


def _buffer(manifest: Manifest, spec: BufferSpec, value: object) -> Buffer:
    wanted = DTYPES[spec.dtype]
    where = f"{manifest.name}: argument {spec.name!r}"
    if isinstance(value, _PLAIN):
        value = np.asarray(value, dtype=wanted)
    try:
        given = operand(value)
    except TypeError as problem:
        raise TypeError(f"{where}: {problem}") from None
    dtype, dimensions = given.wire, len(given.like.wire_shape)
    if dtype != spec.dtype:
        raise TypeError(
            f"{where} is {DTYPES[dtype].name}, but the kernel takes {spec.form};"
            f" convert it with .astype({wanted.name!r})"
        )
    if dimensions != len(spec.shape):
        raise ValueError(f"{where} has {dimensions} dimensions, but the kernel takes {spec.form}")
    return given.buffer()


def _number(manifest: Manifest, name: str, value: Any) -> int | float:
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if not isinstance(value, _NUMBERS):
        raise TypeError(f"{manifest.name}: argument {name!r} must be a number, not {type(value).__name__}")
    return value


def _scalar_parameter(scalar: ScalarSpec) -> inspect.Parameter:
    default = inspect.Parameter.empty if scalar.default is None else scalar.default
    return _parameter(scalar.name, DTYPES[scalar.dtype].name, default)


def _parameter(name: str, annotation: str, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


def _documentation(manifest: Manifest) -> str:
    specs: list[ScalarSpec | BufferSpec] = [*manifest.scalars, *manifest.buffers]
    described = [f"{spec.name}: {spec.description}" for spec in specs if spec.description]
    return "\n\n".join(filter(None, [manifest.summary, manifest.formula, "\n".join(described)]))
