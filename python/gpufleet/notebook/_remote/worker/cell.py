"""Runs a cell among the names that came with it, and reports what became of them."""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib
import inspect
import linecache
import sys
import traceback
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from .display import Display
from .shell import Shell
from .values import digest, dump, load, type_name

__all__ = ["run"]

INSTALL = "install it in the environment of the worker, or send your own module with --upload"
AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
SENT = "sent"
BACK = "values"
ERROR = "error"
"""The files with values."""
ERROR_BYTES_MAX = 1 << 20
"""A larger exception is described by its text alone."""
ATOMS = (int, float, complex, str, bytes, bool, type(None), ModuleType)
"""Values that are sent again more easily than named."""
WITHOUT_CONTENTS = (ModuleType, FunctionType, BuiltinFunctionType, type)
"""Their names come back only if the cell assigns them. What a function uses are names of their own."""


def run(folder: Path, back: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Returns the report for the notebook."""
    cell = _Cell(request, back)
    with (folder / SENT).open("rb") as sent:
        if refused := cell.take(sent):
            return {"refused": refused}
    return cell.run()


class _Cell:
    def __init__(self, request: dict[str, Any], back: Path) -> None:
        self._request = request
        self._back = back
        # Pickle and multiprocessing look for the names of a program in the module `__main__`.
        main = ModuleType("__main__")
        sys.modules["__main__"] = main
        self._names: dict[str, Any] = main.__dict__
        self._names["__builtins__"] = builtins
        self._before: dict[str, Any] = {}
        self._digests: dict[str, bytes | None] = {}
        self._display = Display()
        # As in IPython, they are no names of the notebook.
        for name, function in (("display", self._display), ("get_ipython", Shell)):
            setattr(builtins, name, function)
        for file, (_, source) in request["sources"].items():
            linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)

    def take(self, sent: Any) -> str | None:
        """Takes the names that were sent. Returns why that is impossible."""
        values, lost = load(sent, self._request["sent"], self._names, importlib.import_module)
        for name, problem in lost.items():
            what = f"{name} ({self._request['types'][name]}) can't be read on the worker: {_reason(problem)}"
            return f"{what}; {INSTALL}" if isinstance(problem, ImportError) else what
        for module in self._request["modules"]:
            try:
                importlib.import_module(module)
            except ImportError as problem:
                return f"the worker has no module {module}: {_reason(problem)}; {INSTALL}"
        self._names.update(values)
        self._before = dict(self._names)
        self._digests = {
            name: digest(value, self._names)
            for name, value in self._names.items()
            if not (_is_hidden(name) or isinstance(value, WITHOUT_CONTENTS))
        }
        return None

    def run(self) -> dict[str, Any]:
        error = None
        try:
            self._execute()
        except BaseException as problem:
            error = problem
        try:
            self._display.figures()
        except Exception as problem:
            error = error or problem
        return {**self._return(), "shown": self._display.shown, "error": None if error is None else self._error(error)}

    def _execute(self) -> None:
        """Runs the statements, and shows the value of the last one if it is an expression without a semicolon."""
        file = self._request["file"]
        tree = compile(self._request["code"], file, "exec", ast.PyCF_ONLY_AST | AWAITS, dont_inherit=True)
        assert isinstance(tree, ast.Module)
        last = tree.body[-1:] if self._request["shows_last"] else []
        shown = [statement.value for statement in last if isinstance(statement, ast.Expr)]
        if shown:
            tree.body.pop()
        with asyncio.Runner() as runner:
            self._evaluate(compile(tree, file, "exec", AWAITS, dont_inherit=True), runner)
            for expression in shown:
                code = compile(ast.Expression(expression), file, "eval", AWAITS, dont_inherit=True)
                value = self._evaluate(code, runner)
                if value is not None:
                    self._display(value)

    def _evaluate(self, code: CodeType, runner: asyncio.Runner) -> Any:
        value = eval(code, self._names)
        return runner.run(value) if code.co_flags & inspect.CO_COROUTINE else value

    def _return(self) -> dict[str, Any]:
        """Writes the values of the names that the cell assigned, and of those whose contents changed."""
        now = {name: value for name, value in self._names.items() if not _is_hidden(name)}
        changed = {name: value for name, value in now.items() if self._is_changed(name, value)}
        # A function has the names that it uses with it, which are values of their own and come first.
        ordered = dict(sorted(changed.items(), key=lambda item: isinstance(item[1], WITHOUT_CONTENTS)))
        known = {id(value): name for name, value in now.items() if name not in changed and not isinstance(value, ATOMS)}
        bytes_max = self._request["bytes_max"]
        with (self._back / BACK).open("wb") as file:
            sizes, lost = dump(ordered, file, self._names, known=known, bytes_max=bytes_max)
            too_large = {}
            while sum(sizes.values()) > bytes_max:
                largest = max(sizes, key=sizes.__getitem__)
                too_large[largest] = sizes[largest]
                del ordered[largest]
                sizes, lost = dump(ordered, file, self._names, known=known, bytes_max=bytes_max)
        return {
            "back": sizes,
            "types": {name: type_name(value) for name, value in changed.items()},
            "lost": {name: _reason(problem) for name, problem in lost.items()},
            "too_large": too_large,
            "deleted": [name for name in self._before if not _is_hidden(name) and name not in self._names],
        }

    def _is_changed(self, name: str, value: object) -> bool:
        if name not in self._before or self._before[name] is not value:
            return True
        return name in self._digests and digest(value, self._names) != self._digests[name]

    def _error(self, error: BaseException) -> dict[str, Any]:
        """Describes an exception, with the lines of the cells alone."""
        told = traceback.TracebackException.from_exception(error)
        _rename(told, self._request["sources"])
        with (self._back / ERROR).open("wb") as file:
            sizes, _ = dump({ERROR: error}, file, self._names, bytes_max=ERROR_BYTES_MAX)
        return {
            "text": "".join(told.format_exception_only()).strip(),
            "lines": "".join(told.format()).splitlines(),
            "sizes": sizes if sum(sizes.values()) <= ERROR_BYTES_MAX else {},
        }


def _rename(told: traceback.TracebackException | None, sources: dict[str, list[str]]) -> None:
    """Leaves the frames of this program out, and names the cells."""
    if told is None:
        return
    own = str(Path(__file__).parent)
    told.stack[:] = [frame for frame in told.stack if not frame.filename.startswith(own)]
    for frame in told.stack:
        frame.filename = sources.get(frame.filename, [frame.filename])[0]
    for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
        _rename(other, sources)


def _is_hidden(name: str) -> bool:
    """Returns whether a name is no name of the notebook: one of Python, or `_`, which IPython uses."""
    return not name.strip("_") or (name.startswith("__") and name.endswith("__"))


def _reason(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}"
