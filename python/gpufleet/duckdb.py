"""DuckDB: `create_function` makes a kernel a function of SQL.

>>> import gpufleet as gf
>>> import duckdb
>>> import pyarrow as pa
>>> from gpufleet.arrow import batch_map
>>> from gpufleet.duckdb import create_function
>>> with gf.Fleet() as fleet, duckdb.connect() as connection:
...     saxpy = batch_map(fleet.kernel("saxpy"), ["x", "y"], a=2.0)
...     create_function(connection, "saxpy", saxpy, [pa.float32(), pa.float32()])
...     connection.sql("SELECT saxpy(1::FLOAT, 0.5::FLOAT)").fetchall()
[(2.5,)]
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from gpufleet._peer import peer
from gpufleet.arrow import BatchMap

pa: Any = peer("pyarrow", "duckdb")

__all__ = ["create_function"]

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
}


def create_function(connection: Any, name: str, mapping: BatchMap, types: Sequence[Any]) -> None:
    """Registers a function of the type `arrow`. Its parameters are the columns of the mapping, with these Arrow types.

    Raises `ValueError` unless the kernel has exactly one output.
    """
    schema = pa.schema(list(zip(mapping.columns, types, strict=True)))
    outputs = [field.type for field in mapping.schema(schema) if field.name in mapping.output_columns]
    if len(outputs) != 1:
        raise ValueError(f"a function of SQL has one result, and the kernel has {len(outputs)} outputs")

    def function(*arrays: Any) -> Any:
        (values,) = mapping.outputs(pa.table(list(arrays), schema=schema)).values()
        return pa.array(values)

    # DuckDB compares the number of parameters with the signature.
    kind = inspect.Parameter.POSITIONAL_ONLY
    signature = inspect.Signature([inspect.Parameter(f"arg{index}", kind) for index in range(len(types))])
    function.__signature__ = signature  # type: ignore[attr-defined]
    parameters = [_type(each) for each in types]
    connection.create_function(name, function, parameters, _type(outputs[0]), type="arrow")


def _type(type_: Any) -> str:
    if type_ not in _TYPES:
        raise TypeError(f"DuckDB has no type for {type_}")
    return _TYPES[type_]
