"""Values of a notebook as bytes, and back. Both sides use this file.

The names of a notebook are one world: functions read each other's globals, and several names may have the same object.
So all values go through one pickler, which writes a shared object once, and functions of the notebook get the names of
the other side as their globals. Each value has its own part of the bytes, so that one that can't be read is left out
alone.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from types import CodeType, ModuleType
from typing import Any, BinaryIO, ClassVar

import cloudpickle

__all__ = ["MissingModule", "digest", "dump", "load", "type_name"]

PROTOCOL = 3
"""This protocol numbers the objects that values share. In later ones, a value that is left out would shift them."""


_REDUCERS: Any = cloudpickle.Pickler.dispatch_table


class MissingModule:
    """A module that the worker has and the notebook's machine has not. Cells on the worker can use it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        raise ModuleNotFoundError(
            f"the module {self._name!r} is not installed here, only in the environment of the worker; install it here,"
            " or use it in cells with %%gpu --remote",
            name=self._name,
        )

    def __repr__(self) -> str:
        return f"<module {self._name!r} of the worker>"


def _code(code: CodeType) -> tuple[Any, ...]:
    """Keeps the file of code, which cloudpickle leaves out, so that tracebacks have the lines of cells."""
    make, arguments = _REDUCERS[CodeType](code)
    return make, tuple(code.co_filename if each == "<dynamic-code>" else each for each in arguments)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar = ChainMap({CodeType: _code}, _REDUCERS)

    def __init__(self, file: Any, namespace: dict[str, Any], known: Mapping[int, str]) -> None:
        super().__init__(file, protocol=PROTOCOL)
        # It stands for the globals of all functions of the notebook. cloudpickle adds to it if it is empty.
        self._globals = self.globals_ref[id(namespace)] = {"__name__": "__main__"}
        self._known = known

    def persistent_id(self, value: object) -> tuple[str, str] | None:
        """Returns what stands for a value that the other side has."""
        if value is self._globals:
            return "globals", ""
        if value is os.environ:
            # It has the secrets of the notebook's machine, and a cell means the variables of the worker.
            return "environ", ""
        if isinstance(value, MissingModule):
            return "module", value._name
        if isinstance(value, ModuleType) and (name := _importable(value)):
            return "module", name
        found = self._known.get(id(value))
        return None if found is None else ("name", found)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, namespace: dict[str, Any], module: Callable[[str], object]) -> None:
        super().__init__(file)
        self._namespace = namespace
        self._module = module

    def persistent_load(self, what: tuple[str, str]) -> object:
        kind, name = what
        match kind:
            case "globals":
                return self._namespace
            case "environ":
                return os.environ
            case "module":
                return self._module(name)
        return self._namespace[name]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch.storage", "_load_from_bytes"):
            return _load_storage
        return super().find_class(module, name)


class _Counted:
    """A file that keeps so many bytes, and counts the others."""

    def __init__(self, file: BinaryIO, bytes_max: int | None) -> None:
        self._file = file
        self._bytes_max = bytes_max
        self.bytes = 0

    def write(self, data: bytes) -> int:
        self.bytes += len(data)
        if self._bytes_max is None or self.bytes <= self._bytes_max:
            self._file.write(data)
        return len(data)


class _Hashed:
    def __init__(self) -> None:
        self.digest = hashlib.blake2b()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return len(data)


def dump(
    values: Mapping[str, object],
    file: BinaryIO,
    namespace: dict[str, Any],
    *,
    known: Mapping[int, str] | None = None,
    bytes_max: int | None = None,
) -> tuple[dict[str, int], dict[str, Exception]]:
    """Writes values. Returns the size of each, and why others were left out.

    `namespace` has the globals of the notebook's functions. `known` are names of the other side, by the id of a value
    that is still the same there. Of more bytes than `bytes_max`, only the sizes are right.
    """
    lost: dict[str, Exception] = {}
    while True:
        file.seek(0)
        file.truncate()
        counted = _Counted(file, bytes_max)
        pickler = _Pickler(counted, namespace, known or {})
        sizes: dict[str, int] = {}
        for name, value in values.items():
            if name in lost:
                continue
            before = counted.bytes
            try:
                pickler.dump(value)
            except Exception as problem:
                # The pickler takes parts of the value for written, so the others are written again without it.
                lost[name] = problem
                break
            sizes[name] = counted.bytes - before
        else:
            return sizes, lost


def load(
    file: BinaryIO, sizes: Mapping[str, int], namespace: dict[str, Any], module: Callable[[str], object]
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Reads values. Returns them, and why others could not be read. `module` returns a module by its name."""
    lost: dict[str, Exception] = {}
    while True:
        file.seek(0)
        part = io.BytesIO()
        unpickler = _Unpickler(part, namespace, module)
        values: dict[str, Any] = {}
        for name, size in sizes.items():
            data = file.read(size)
            if name in lost:
                continue
            part.seek(0)
            part.truncate()
            part.write(data)
            part.seek(0)
            try:
                values[name] = unpickler.load()
            except Exception as problem:
                # The unpickler has objects that are half made, so the others are read again without it.
                lost[name] = problem
                break
        else:
            return values, lost


def digest(value: object, namespace: dict[str, Any]) -> bytes | None:
    """Returns a digest of the contents of a value. None if it can't be pickled."""
    hashed = _Hashed()
    try:
        _Pickler(hashed, namespace, {}).dump(value)
    except Exception:
        return None
    return hashed.digest.digest()


def type_name(value: object) -> str:
    """Returns the type of a value as people know it.

    >>> type_name(3), type_name(io.BytesIO())
    ('int', '_io.BytesIO')
    """
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _importable(module: ModuleType) -> str | None:
    name = module.__name__
    by_value = cloudpickle.list_registry_pickle_by_value()
    is_by_value = any(name == each or name.startswith(f"{each}.") for each in by_value)
    return name if name != "__main__" and not is_by_value and sys.modules.get(name) is module else None


def _load_storage(data: bytes) -> Any:
    """Reads the storage of tensors. One of a GPU comes into main memory if there is no GPU here."""
    torch: Any = importlib.import_module("torch")
    where = None if torch.cuda.is_available() else "cpu"
    return torch.load(io.BytesIO(data), map_location=where, weights_only=False)
