"""Imports libraries that only some users have."""

from __future__ import annotations

import importlib
from types import ModuleType


def peer(module: str, extra: str) -> ModuleType:
    """Imports a library. If it is missing, raises an exception that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        library = module.partition(".")[0]
        raise ImportError(
            f"gpufleet.{extra} needs {library}: pip install 'gpufleet[{extra}]'", name=problem.name
        ) from problem
