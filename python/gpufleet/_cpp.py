"""Reads CUDA C++ as far as kernel signatures need: words, macros without parameters, and sections that `#if 0` hides.

This is no preprocessor. A macro with parameters, or one that is defined twice, makes the code unreadable, which the
caller is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

__all__ = ["UNREADABLE", "closing", "read", "split"]

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Stands in the text for a macro that this reader can not expand."""

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<directive>^[ \t]*\#(?:/\*.*?\*/|[^\n])*)
    |(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
    |(?P<token>
        "(?:\\.|[^"\\\n])*"
        |'(?:\\.|[^'\\\n])*'
        |[A-Za-z_$][\w$]*
        |\.?\d(?:[eEpP][+-]|[\w.'])*
        |::|\.\.\.|\S
    )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_DEFINE = re.compile(r"\s*#\s*define\s+([A-Za-z_]\w*)(\()?(.*)", re.DOTALL)
_OTHER = re.compile(r"\s*#\s*(\w+)\s*(.*)", re.DOTALL)
_OPENING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_DEPTH_MAX = 32


def read(code: str, options: Iterable[str] = ()) -> list[str]:
    """Returns the words of the code, with macros expanded and without comments."""
    reader = _Reader()
    for option in _definitions(options):
        name, _, value = option.partition("=")
        reader.define(f"#define {name} {value or '1'}")
    reader.read(code.replace("\\\r\n", "").replace("\\\n", ""))
    return reader.tokens


def _definitions(options: Iterable[str]) -> Iterator[str]:
    wanted = False
    for option in options:
        if wanted:
            yield option
        wanted = option in ("-D", "--define-macro", "-define-macro")
        for prefix in ("--define-macro=", "-define-macro=", "-D"):
            if option.startswith(prefix) and not wanted:
                yield option.removeprefix(prefix)
                break


class _Reader:
    def __init__(self) -> None:
        self.tokens: list[str] = []
        self._macros: dict[str, list[str]] = {}
        # How deep conditions are nested inside a group that `#if 0` hides; 0 outside of one.
        self._hidden = 0

    def read(self, code: str) -> None:
        for found in _TOKEN.finditer(code):
            if directive := found["directive"]:
                self._obey(directive)
            elif not self._hidden and (token := found["token"]):
                self.tokens.extend(self._expanded(token))

    def define(self, directive: str) -> None:
        found = _DEFINE.match(directive)
        if found is None:
            return
        name, has_parameters, body = found.groups()
        words = [match["token"] for match in _TOKEN.finditer(body) if match["token"]]
        if has_parameters or self._macros.get(name, words) != words:
            words = [UNREADABLE]
        self._macros[name] = words

    def _obey(self, directive: str) -> None:
        found = _OTHER.match(directive)
        if found is None:
            return
        word, rest = found.groups()
        if self._hidden:
            self._leave_hidden(word)
        elif word == "if" and rest.split("//")[0].strip() in ("0", "false"):
            self._hidden = 1
        elif word == "define":
            self.define(directive)
        elif word == "undef":
            self._macros.pop(rest.strip(), None)

    def _leave_hidden(self, word: str) -> None:
        if word in ("if", "ifdef", "ifndef"):
            self._hidden += 1
        elif word == "endif" or (word in ("else", "elif") and self._hidden == 1):
            self._hidden -= 1

    def _expanded(self, token: str, depth: int = 0) -> list[str]:
        if token not in self._macros:
            return [token]
        if depth == _DEPTH_MAX:
            return [UNREADABLE]
        return [word for inner in self._macros[token] for word in self._expanded(inner, depth + 1)]


def closing(tokens: Sequence[str], start: int) -> int:
    """Returns the index of the bracket that closes the one at `start`, or the length of the text if there is none."""
    opening, close = tokens[start], _OPENING[tokens[start]]
    depth = 0
    for index in range(start, len(tokens)):
        depth += (tokens[index] == opening) - (tokens[index] == close)
        if depth == 0:
            return index
    return len(tokens)


def split(tokens: Sequence[str]) -> list[list[str]]:
    """Splits a list at the commas that are outside of brackets."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in _OPENING) - (token in _OPENING.values())
        if token == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []
