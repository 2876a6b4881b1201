"""Runs kernels over columns of Arrow tables, for frameworks that pass batches of rows to a function.

`batch_map` makes such a function. It maps a `pyarrow.RecordBatch`, or a `pyarrow.Table`, to one that has the kernel's
outputs as columns. `gpufleet.pandas`, `gpufleet.polars`, `gpufleet.duckdb`, `gpufleet.dask` and `gpufleet.spark` adapt
it to the conventions of these libraries.

>>> import gpufleet as gf
>>> import numpy as np
>>> import pyarrow as pa
>>> from gpufleet.arrow import batch_map
>>> batch = pa.record_batch({"x": np.ones(2, np.float32), "y": np.zeros(2, np.float32)})
>>> with gf.Fleet() as fleet:
...     saxpy = batch_map(fleet.kernel("saxpy"), ["x", "y"], out="sum", a=2.0)
...     saxpy(batch).to_pydict()
{'x': [1.0, 1.0], 'y': [0.0, 0.0], 'sum': [2.0, 2.0]}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpufleet._arrays import as_array
from gpufleet._catalog import CatalogKernel, manifests
from gpufleet._elementwise import ElementwiseKernel
from gpufleet._peer import peer
from gpufleet._task import Input
from gpufleet._wire import DTYPES

if TYPE_CHECKING:
    from gpufleet._fleet import Fleet
    from gpufleet._future import Future
    from gpufleet._settings import Settings

pa: Any = peer("pyarrow", "arrow")
pc: Any = peer("pyarrow.compute", "arrow")

__all__ = ["BatchMap", "batch_map"]

Array = npt.NDArray[Any]

ROWS_MAX = 1 << 17
"""The maximum number of rows in a job. Larger batches are split, so that they fit into messages and several workers
share them.
"""
SAMPLE_ROWS = 2
"""The number of rows of the sample arrays that show what a kernel returns."""

_fleets: dict[Settings, Fleet] = {}
"""The fleets of unpickled functions. Frameworks unpickle a function for each of their tasks; all of these share a
fleet.
"""


@dataclass(frozen=True, slots=True)
class _Column:
    """An argument that names a column of the batch."""

    name: str


def batch_map(
    kernel: CatalogKernel | ElementwiseKernel,
    columns: str | Sequence[Any] | Mapping[str, Any],
    *,
    out: str | Sequence[str] | None = None,
    drop: bool | str | Iterable[str] = False,
    fill_null: float | None = None,
    **fixed: Any,
) -> BatchMap:
    """Makes a function that runs a kernel over columns of a batch, and returns the batch with the outputs as columns.

    `columns` has the kernel's arguments, in order or by name. Strings name columns; any other value is passed to the
    kernel unchanged, and so are the `fixed` arguments. The kernel must compute each row on its own; otherwise
    `TypeError` is raised.

    The output columns have the names of the kernel's outputs, or those in `out`. An output with the name of an existing
    column replaces that column; the others are appended. `drop` names existing columns to leave out; `True` leaves out
    all.

    Nulls in the kernel's columns raise `ValueError`, unless `fill_null` has the number to use in their place.

    The function can be pickled if its fleet can be pickled. Each process connects once, when it first calls the
    function.
    """
    _require_elementwise(kernel)
    args: tuple[object, ...] = ()
    named: dict[str, object] = {}
    if isinstance(columns, Mapping):
        named = {name: _argument(value) for name, value in columns.items()}
    else:
        args = tuple(map(_argument, (columns,) if isinstance(columns, str) else columns))
    if twice := named.keys() & fixed.keys():
        raise TypeError(f"argument {min(twice)!r} is given twice; remove it from columns or from the fixed arguments")
    names = _output_names(kernel) if out is None else (out,) if isinstance(out, str) else tuple(out)
    if len(set(names)) < len(names):
        raise ValueError(f"two output columns have the same name: {', '.join(names)}")
    dropped = drop if isinstance(drop, bool) else frozenset((drop,) if isinstance(drop, str) else drop)
    return BatchMap(kernel, args, {**named, **fixed}, names, dropped, fill_null)


class BatchMap:
    """A function that maps batches to batches. `batch_map` makes it."""

    def __init__(
        self,
        kernel: CatalogKernel | ElementwiseKernel,
        args: tuple[object, ...],
        named: dict[str, object],
        out: tuple[str, ...],
        dropped: bool | frozenset[str],
        fill_null: float | None,
    ) -> None:
        self._kernel = kernel
        self._args = args
        self._named = named
        self._out = out
        self._dropped = dropped
        self._fill_null = fill_null
        arguments = (*args, *named.values())
        self.columns: list[str] = list(dict.fromkeys(each.name for each in arguments if isinstance(each, _Column)))
        """The names of the columns that the kernel reads."""
        if not self.columns:
            raise ValueError("batch_map needs a column; give its name as a text")
        self._require_rows()

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The names of the columns that the kernel writes."""
        return self._out

    def __call__(self, batch: Any) -> Any:
        """Maps a record batch to a record batch, or a table to a table. Raises the exception of a failed job."""
        schema = self.schema(batch.schema)
        outputs = {name: pa.array(values) for name, values in self.outputs(batch).items()}
        existing = dict(zip(batch.schema.names, batch.columns, strict=True))
        return type(batch).from_arrays([outputs.get(name, existing.get(name)) for name in schema.names], schema=schema)

    def batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Maps record batches one after the other."""
        return map(self, batches)

    def outputs(self, batch: Any) -> dict[str, Array]:
        """Returns only the output columns of a record batch or a table, by name."""
        columns = {name: self._numbers(batch, name) for name in self.columns}
        types = self._output_types(batch.schema)
        if batch.num_rows == 0:
            return {name: np.empty(0, dtype) for name, dtype in types.items()}
        futures = [self._submit(columns, start) for start in range(0, batch.num_rows, ROWS_MAX)]
        try:
            parts = [_values(future.result()) for future in futures]
        except Exception:
            for future in futures:
                future.cancel()
            raise
        return {name: np.concatenate(each) for name, each in zip(types, zip(*parts, strict=True), strict=True)}

    def schema(self, schema: Any) -> Any:
        """Returns the schema of the results for batches with this schema. Nothing is sent."""
        outputs = {
            name: pa.field(name, pa.from_numpy_dtype(dtype)) for name, dtype in self._output_types(schema).items()
        }
        kept = [field for field in schema if field.name not in self.dropped(schema.names)]
        fields = [outputs.pop(field.name, field) for field in kept]
        return pa.schema([*fields, *outputs.values()], schema.metadata)

    def dropped(self, names: Sequence[str]) -> list[str]:
        """Returns those of these columns that are left out."""
        if isinstance(self._dropped, bool):
            return list(names) if self._dropped else []
        if unknown := self._dropped - set(names):
            raise ValueError(f"the column {min(unknown)!r} can not be dropped: {_has(names)}")
        return [name for name in names if name in self._dropped]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        fleet = self._kernel._fleet
        self._kernel._fleet = _fleets.setdefault(fleet._settings, fleet)

    def _submit(self, columns: Mapping[str, Array], start: int) -> Future[Any]:
        part = {name: values[start : start + ROWS_MAX] for name, values in columns.items()}
        args, named = self._arguments(part)
        return self._kernel.submit(*args, **named)

    def _arguments(self, columns: Mapping[str, Array]) -> tuple[list[Any], dict[str, Any]]:
        """Returns the kernel's arguments with these arrays in place of the columns."""

        def value(argument: object) -> object:
            return columns[argument.name] if isinstance(argument, _Column) else argument

        return [value(each) for each in self._args], {name: value(each) for name, each in self._named.items()}

    def _numbers(self, batch: Any, name: str) -> Array:
        """Returns the numbers of a column. Raises `ValueError` for nulls, unless `fill_null` is set."""
        _type_of(batch.schema, name)
        column = batch.column(name)
        if column.null_count and self._fill_null is None:
            raise ValueError(
                f"the column {name!r} has {column.null_count} nulls, and kernels take only numbers; give fill_null="
                " the number to compute with in their place, or remove the rows"
            )
        return as_array(pc.fill_null(column, self._fill(column.type)) if column.null_count else column)

    def _fill(self, type_: Any) -> Any:
        try:
            return pa.scalar(self._fill_null).cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
            raise ValueError(f"fill_null does not fit a column of {type_}: {problem}") from None

    def _output_types(self, schema: Any) -> dict[str, np.dtype[Any]]:
        """Returns the dtypes of the output columns. Wrong arguments raise here, so that nothing is sent."""
        sample = {name: np.zeros(SAMPLE_ROWS, _type_of(schema, name).to_pandas_dtype()) for name in self.columns}
        args, named = self._arguments(sample)
        task, finish = self._kernel._prepare(*args, **named)
        if isinstance(self._kernel, CatalogKernel):
            outputs = {spec.name: np.zeros(SAMPLE_ROWS, DTYPES[spec.dtype]) for spec in self._kernel._manifest.outputs}
        else:
            outputs = {name: _zeros(task.buffers[name]) for name in task.outputs}
        values = _values(finish(outputs))
        if len(values) != len(self._out):
            raise ValueError(f"{self._kernel!r} has {len(values)} outputs, and out has {len(self._out)} names")
        for name, each in zip(self._out, values, strict=True):
            if each.shape != (SAMPLE_ROWS,):
                raise ValueError(f"the output {name!r} of {self._kernel!r} does not have one number for each row")
        return {name: values.dtype for name, values in zip(self._out, values, strict=True)}

    def _require_rows(self) -> None:
        """Refuses columns for raw parameters, which read any element, because a job has only some of the rows."""
        if not isinstance(self._kernel, ElementwiseKernel):
            return
        for param, argument in zip(self._kernel._inputs, self._args, strict=False):
            if param.is_raw and isinstance(argument, _Column):
                raise TypeError(
                    f"the parameter {param.name!r} is raw, so it can not be the column {argument.name!r}: a job has"
                    " only some of the rows"
                )


def _require_elementwise(kernel: object) -> None:
    if isinstance(kernel, ElementwiseKernel):
        return
    if not isinstance(kernel, CatalogKernel):
        raise TypeError(
            f"batch_map takes a catalog kernel or an ElementwiseKernel, not a {type(kernel).__name__}; write the"
            " computation of one row as an ElementwiseKernel"
        )
    if not kernel._manifest.is_elementwise:
        others = ", ".join(name for name, manifest in manifests().items() if manifest.is_elementwise)
        raise TypeError(
            f"{kernel.__name__} does not compute each row on its own; kernels of the catalog that do are {others}"
        )


def _output_names(kernel: CatalogKernel | ElementwiseKernel) -> tuple[str, ...]:
    specs = kernel._manifest.outputs if isinstance(kernel, CatalogKernel) else kernel._outputs
    return tuple(spec.name for spec in specs)


def _argument(value: object) -> object:
    return _Column(value) if isinstance(value, str) else value


def _type_of(schema: Any, name: str) -> Any:
    """Returns the type of a column. Raises `TypeError` if it has no numbers."""
    index = schema.get_field_index(name)
    if index < 0:
        raise ValueError(f"there is not one column {name!r}: {_has(schema.names)}")
    type_ = schema.field(index).type
    if not (pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_)):
        raise TypeError(f"the column {name!r} is {type_}, and kernels take only numbers; convert it first")
    return type_


def _has(names: Sequence[str]) -> str:
    return f"the batch has {', '.join(names) or 'no columns'}"


def _values(result: Any) -> list[Array]:
    """Returns the outputs of a kernel in order."""
    return list(result) if isinstance(result, tuple) else [] if result is None else [result]


def _zeros(buffer: Any) -> Array:
    """Returns zeros in the shape and dtype in which a buffer is returned."""
    shape = buffer.array.shape if isinstance(buffer, Input) else buffer.shape
    return np.zeros(shape, DTYPES[buffer.dtype])
