"""The code of a cell, as Python."""

from __future__ import annotations

import ast
import io
import linecache
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

__all__ = ["Code", "code_of", "files_of", "sources"]

_SPACE = (tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT)


@dataclass(frozen=True, slots=True)
class Code:
    """The code below the magic. Its lines have the numbers that they have in the cell."""

    text: str
    file: str
    """The file under which IPython knows the lines."""
    shows_last: bool
    """Whether the value of the last expression is shown."""

    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.file)


def code_of(shell: Any, cell: str, file: str) -> Code:
    """Returns the code of a cell. Raises `SyntaxError` if it is no Python."""
    # IPython leaves the empty lines at the beginning out.
    above = len(cell) - len(cell.lstrip("\n"))
    text = "\n" * (1 + above) + shell.transform_cell(cell)
    ast.parse(text, file)
    return Code(text, file, not _ends_with_semicolon(text))


def sources(shell: Any, files: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Returns the names of cells, as tracebacks have them, and their lines, by their files."""
    found = {}
    for file in files:
        name = " ".join(shell.compile.format_code_name(file) or (file,))
        found[file] = (name, "".join(linecache.getlines(file)))
    return found


def files_of(values: Iterable[object]) -> set[str]:
    """Returns the files of the functions and of the methods of classes."""
    members = [
        member for value in values for member in (value, *(vars(value).values() if isinstance(value, type) else ()))
    ]
    codes = (getattr(member, "__code__", None) for member in members)
    return {code.co_filename for code in codes if isinstance(code, CodeType)}


def _ends_with_semicolon(text: str) -> bool:
    """Returns whether the last expression is to show nothing.

    >>> _ends_with_semicolon("plot(x);  # a curve\\n"), _ends_with_semicolon("'a;'")
    (True, False)
    """
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    last = [token.string for token in tokens if token.type not in _SPACE][-1:]
    return last == [";"]
