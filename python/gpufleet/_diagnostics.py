"""The messages of compilers and devices about a program, with the position in the caller's file or notebook cell."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Diagnostic", "Excerpt", "Origin", "origin_of", "parse", "render", "report"]

CODE_FILE = "kernel.cu"
"""The file name of the caller's code in the compiler's messages."""
FRAMES_MAX = 16
REPORT_LINES_MAX = 40
"""The maximum number of lines of a report in a note. The exception's `detail` has all lines."""
_EXPRESSIONS_FILE = "__nv_name_map"
_EXPRESSION_LINE = "#pragma nv_mangled_name "

_HEAD = re.compile(
    r"(?:(?P<file>[^()\n]+)\((?P<line>\d+)\)|(?P<end>At end of source)): "
    r"(?P<severity>(?:catastrophic )?error|warning|note|remark)(?: #(?P<number>\d+)-D)?: (?P<message>.*)"
)
_QUOTED = re.compile(r'"([^"]+)"')


class Excerpt(NamedTuple):
    """Lines of a program."""

    first_line: int
    """The number of the first line, counted from 1."""
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message of the compiler."""

    severity: str
    """The severity: error, catastrophic error, warning, note or remark."""
    message: str
    file: str | None = None
    """`kernel.cu` for the caller's code, otherwise a header."""
    line: int | None = None
    source: str | None = None
    """The line of code, without its indentation."""
    column: int | None = None
    """The position of the problem in `source`, counted from 0."""
    details: tuple[str, ...] = ()
    """Further lines of the message, such as the instantiation of a template."""

    @property
    def is_error(self) -> bool:
        return self.severity.endswith("error")

    @property
    def width(self) -> int:
        """How many characters are marked: the length of the name that the message quotes, if the code has it at this
        position.
        """
        if self.source is None or self.column is None:
            return 0
        rest = self.source[self.column :]
        return next((len(name) for name in _QUOTED.findall(self.message) if rest.startswith(name)), 1)


@dataclass(frozen=True, slots=True)
class Origin:
    """The position of a program's text in a Python file or in a notebook's cell."""

    file: str
    line: int


def parse(log: str) -> tuple[Diagnostic, ...]:
    """Reads a log of NVRTC.

    >>> (found,) = parse('kernel.cu(2): error: identifier "z" is undefined\\n      y = z;\\n          ^\\n')
    >>> found.line, found.message, found.source, found.column
    (2, 'identifier "z" is undefined', 'y = z;', 4)
    """
    lines = log.splitlines()
    heads = [index for index, line in enumerate(lines) if _HEAD.match(line)]
    ends = [*heads, len(lines)][1:]
    return tuple(_diagnostic(lines[head], _body(lines[head + 1 : end])) for head, end in zip(heads, ends, strict=True))


def _body(lines: Iterable[str]) -> list[str]:
    """Returns the lines that belong to a message, which end at an empty line."""
    body: list[str] = []
    for line in lines:
        if not line.strip():
            break
        body.append(line)
    return body


def _diagnostic(head: str, body: list[str]) -> Diagnostic:
    found = _HEAD.match(head)
    assert found, "the caller has matched the line"
    severity, message, file = found["severity"], found["message"], found["file"]
    line = None if found["line"] is None else int(found["line"])
    mark = next((index for index, text in enumerate(body) if text.strip() == "^"), 0)
    if mark == 0:
        return Diagnostic(severity, message, file, line, details=tuple(text.strip() for text in body))
    source = body[mark - 1]
    column = max(body[mark].index("^") - (len(source) - len(source.lstrip())), 0)
    details = tuple(text.strip() for text in body[mark + 1 :])
    source = source.strip()
    if file == _EXPRESSIONS_FILE:
        # The code is the name of a kernel, which the caller gave.
        file, line = None, None
        column = max(column - len(_EXPRESSION_LINE), 0)
        source = source.removeprefix(_EXPRESSION_LINE)
    return Diagnostic(severity, message, file, line, source, column, details)


def render(diagnostic: Diagnostic, origin: Origin | None) -> str:
    """Formats a message like Python's own syntax errors, with the position in the caller's file."""
    return "\n".join(_rendered(diagnostic, origin))


def _rendered(diagnostic: Diagnostic, origin: Origin | None) -> Iterator[str]:
    file, line = diagnostic.file, diagnostic.line
    if origin is not None and file == CODE_FILE and line is not None:
        file, line = origin.file, origin.line + line - 1
    if file is not None:
        yield f'  File "{file}", line {line}'
    if diagnostic.source is not None and diagnostic.column is not None:
        before = diagnostic.source[: diagnostic.column]
        yield f"    {diagnostic.source}"
        # A tab before the mark is kept, so that both lines have the same width.
        yield f"    {''.join(c if c == chr(9) else ' ' for c in before)}{'^' * diagnostic.width}"
    yield f"  {diagnostic.severity}: {diagnostic.message}"
    for detail in diagnostic.details:
        yield f"    {detail}"


def report(line: int | None, source: Excerpt | None, detail: str | None, origin: Origin | None) -> str:
    """Describes where a program failed, and the worker's report. Empty if neither is known."""
    return "\n".join([*_place(line, source, origin), *_shortened(detail or "")])


def _place(line: int | None, source: Excerpt | None, origin: Origin | None) -> Iterator[str]:
    if line is None:
        return
    yield (
        f"  line {line} of the program" if origin is None else f'  File "{origin.file}", line {origin.line + line - 1}'
    )
    if source is not None:
        lines = source.text.splitlines()
        if 0 <= (index := line - source.first_line) < len(lines):
            yield f"    {lines[index].strip()}"


def _shortened(detail: str) -> Iterator[str]:
    lines = detail.splitlines()
    yield from (f"  {line}" for line in lines[:REPORT_LINES_MAX])
    if more := len(lines[REPORT_LINES_MAX:]):
        yield f"  (and {more} more lines in the exception's `detail`)"


def origin_of(code: str) -> Origin | None:
    """Finds the code in the files of this package's callers. Notebooks register their cells as files."""
    frame = sys._getframe(1)
    seen: set[str] = set()
    for _ in range(FRAMES_MAX):
        file = frame.f_code.co_filename
        is_own = str(frame.f_globals.get("__name__", "")).startswith("gpufleet.")
        if not is_own and file not in seen:
            seen.add(file)
            text = "".join(linecache.getlines(file, frame.f_globals))
            if found := _line_in(text, code, frame.f_lineno):
                return Origin(file, found)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def _line_in(text: str, code: str, call: int) -> int | None:
    """Returns the line at which the code begins. If the file has it more than once, returns the last one before the
    call.
    """
    for form in (code, code.replace("\\", "\\\\")):
        lines = [text.count("\n", 0, found.start()) + 1 for found in re.finditer(re.escape(form), text)]
        if lines:
            return max((line for line in lines if line <= call), default=lines[0])
    return None
