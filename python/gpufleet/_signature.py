"""Finds a kernel in CUDA C++ and reads its parameters.

`const T*` is an input; `T*` is also returned. If this reader can not understand a parameter, for example because of a
macro with parameters or a template without its arguments, the parameter has no type here, and the caller's NumPy types
determine it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpufleet._cpp import UNREADABLE, closing, read, split
from gpufleet._element import Element, element_of
from gpufleet._errors import InvalidJob

__all__ = ["Parameter", "Signature", "SignatureError", "c_kernels", "signature"]


class SignatureError(InvalidJob):
    """The source does not have the kernel in a form that can be launched. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter. `element` is `None` if only the compiler knows its type."""

    name: str
    type: str
    element: Element | None
    is_pointer: bool = False
    is_input: bool = False
    """Whether the kernel only reads the array."""
    is_word: bool = False
    """Whether it is a 64-bit word of PTX, which may be an address or a number."""

    def __str__(self) -> str:
        return f"{self.name!r} ({self.type})"


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a kernel. If they can not be read, they are `None`, and `problem` has the reason."""

    entry: str
    parameters: tuple[Parameter, ...] | None
    problem: str = ""


class _Unreadable(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Declaration:
    name: str
    parameters: list[str]
    template: list[str] | None
    is_c: bool
    in_namespace: bool


_IGNORED = {
    "__restrict__",
    "__restrict",
    "restrict",
    "volatile",
    "__grid_constant__",
    "register",
    "struct",
    "class",
    "enum",
    "union",
    "typename",
}
_BUILT_IN = {"signed", "unsigned", "char", "short", "int", "long", "float", "double", "bool", "void"}


def signature(code: str, entry: str, options: Iterable[str] = ()) -> Signature:
    """Reads the signature of a kernel.

    >>> found = signature('extern "C" __global__ void scale(float *x, float a) {}', "scale")
    >>> [str(parameter) for parameter in found.parameters]
    ["'x' (float*)", "'a' (float)"]
    """
    tokens = read(code, options)
    aliases: dict[str, list[str]] = {}
    declarations = list(_declarations(tokens, aliases))
    name, arguments = _parse_entry(entry)
    found = [declaration for declaration in declarations if declaration.name == name]
    if not found:
        if UNREADABLE in tokens:
            return Signature(entry, None, "a macro with parameters hides it")
        known = ", ".join(dict.fromkeys(declaration.name for declaration in declarations))
        raise SignatureError(
            f"the source has no kernel {name!r}; "
            + (f"its kernels are {known}" if known else "it has no __global__ function")
        )
    _check_entry(entry, found)
    try:
        readings = {_parameters(declaration, arguments, aliases) for declaration in found}
    except _Unreadable as problem:
        return Signature(entry, None, str(problem))
    if len(readings) > 1:
        return Signature(entry, None, "it is declared more than once, with different parameters")
    return Signature(entry, readings.pop())


def c_kernels(code: str, options: Iterable[str] = ()) -> list[str]:
    """Returns the names of the `extern "C"` kernels, in order.

    >>> c_kernels('extern "C" __global__ void a(int n) {} __global__ void b(int n) {}')
    ['a']
    """
    found = _declarations(read(code, options), {})
    return list(dict.fromkeys(declaration.name for declaration in found if declaration.is_c))


def _parse_entry(entry: str) -> tuple[str, list[list[str]] | None]:
    """Splits a name expression into the kernel's own name and its template arguments."""
    tokens = read(entry)
    if "<" in tokens:
        start = tokens.index("<")
        return tokens[start - 1] if start else "", split(tokens[start + 1 : closing(tokens, start)])
    return (tokens[-1] if tokens else ""), None


def _check_entry(entry: str, found: Sequence[_Declaration]) -> None:
    name = found[0].name
    if entry != name or any(declaration.is_c for declaration in found):
        return
    if any(declaration.template is not None for declaration in found):
        raise SignatureError(f"kernel {name!r} is a template; name one of its instances, for example '{name}<float>'")
    qualified = f"namespace::{name}" if found[0].in_namespace else f"::{name}"
    raise SignatureError(
        f'kernel {name!r} is not extern "C", so the compiler mangles its name; write extern "C" before __global__, or'
        f" name it {qualified!r}"
    )


def _declarations(tokens: Sequence[str], aliases: dict[str, list[str]]) -> Iterator[_Declaration]:
    """Returns every `__global__` function outside of bodies, and records the aliases of types."""
    blocks: list[str] = []
    head: list[str] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token == "{" and (kind := _block(head)):
            blocks.append(kind)
            head = []
        elif token == "{":
            index = closing(tokens, index)
            # A type may be declared together with a name for it, so only a function ends here.
            head = [] if ")" in head else [*head, "{}"]
        elif token in (";", "}"):
            _note_alias(head, aliases)
            head = []
            if token == "}" and blocks:
                blocks.pop()
        elif token == "(":
            end = closing(tokens, index)
            if "__global__" in head and _is_kernel_name(head[-1]):
                template = head[head.index("<") + 1 : closing(head, head.index("<"))] if "template" in head else None
                is_c = "C" in blocks or '"C"' in head
                yield _Declaration(head[-1], list(tokens[index + 1 : end]), template, is_c, "namespace" in blocks)
            head += ["(", ")"]
            index = end
        else:
            head.append(token)
        index += 1


def _block(head: Sequence[str]) -> str | None:
    """Returns the kind of a block that can contain kernels."""
    if "namespace" in head:
        return "namespace"
    if list(head[:1]) == ["extern"] and len(head) == 2:
        return head[1].strip('"')
    return None


def _is_kernel_name(token: str) -> bool:
    """Returns whether a word is the kernel's name. Attributes such as `__launch_bounds__` also precede parentheses."""
    return (token[0].isalpha() or token[0] == "_") and not (token.startswith("__") and token.endswith("__"))


def _note_alias(head: Sequence[str], aliases: dict[str, list[str]]) -> None:
    match head:
        case ["typedef", *words, name]:
            aliases[name] = list(words)
        case ["using", name, "=", *words]:
            aliases[name] = list(words)


def _parameters(
    declaration: _Declaration, arguments: list[list[str]] | None, aliases: dict[str, list[str]]
) -> tuple[Parameter, ...]:
    if UNREADABLE in declaration.parameters:
        raise _Unreadable("a macro with parameters is in its signature")
    types = {**aliases, **_template_types(declaration.template or [], arguments or [])}
    parts = split(declaration.parameters)
    if parts == [["void"]]:
        return ()
    found = [_parameter(part, types, index) for index, part in enumerate(parts)]
    names = [parameter.name for parameter in found]
    return tuple(
        replace(parameter, name=f"arg{index}") if names.count(parameter.name) > 1 else parameter
        for index, parameter in enumerate(found)
    )


def _template_types(template: Sequence[str], arguments: list[list[str]]) -> dict[str, list[str]]:
    """Returns the type for each type parameter of a template, as far as the name expression determines it."""
    types = {}
    for index, part in enumerate(split(template)):
        declared, default = (part[: part.index("=")], part[part.index("=") + 1 :]) if "=" in part else (part, [])
        if len(declared) == 2 and declared[0] in ("typename", "class"):
            types[declared[1]] = arguments[index] if index < len(arguments) else default or [UNREADABLE]
    return types


def _parameter(tokens: list[str], types: dict[str, list[str]], index: int) -> Parameter:
    words = [token for token in tokens[: _position(tokens, "=")] if token not in _IGNORED]
    if not words or "..." in words or "(" in words:
        raise _Unreadable("its parameters are not a plain list of types and names")
    is_array = "[" in _own(words)
    words = words[: _position(words, "[")]
    words, name = _take_name(words, is_array)
    if "&" in _own(words):
        raise SignatureError(
            f"parameter {name or index!r} is a reference, which no host can pass; use a pointer or a value"
        )
    stars = _own(words).count("*") + is_array
    base = words[: _position(words, "*")]
    is_const = "const" in _own(base)
    base = _resolve(_without_const(base), types)
    spelled = ("const " if is_const and stars else "") + _spell(base) + "*" * stars
    name = name or f"arg{index}"
    if stars > 1:
        raise SignatureError(
            f"parameter {name!r} ({spelled}) points to pointers, which no host can fill; pass one array and offsets"
        )
    return Parameter(name, spelled, element_of(base), stars == 1, is_const and stars == 1)


def _take_name(words: list[str], is_array: bool) -> tuple[list[str], str | None]:
    """Separates the parameter's name from its type."""
    last, before = words[-1], _without_const(words[:-1])
    is_word = last[0].isalpha() or last[0] in "_$"
    if not is_word or last in _BUILT_IN or last == "const" or not before or before[-1] == "::":
        return words, None
    return words[:-1], last


def _resolve(base: list[str], types: dict[str, list[str]], depth: int = 0) -> list[str]:
    """Replaces aliases and template parameters by their types."""
    resolved: list[str] = []
    for word in base:
        meaning = types.get(word)
        if meaning is None or depth > len(types) or UNREADABLE in meaning or "{}" in meaning:
            resolved.append(word)
        elif {"*", "(", "[", "const", "&"} & set(_own(meaning)):
            # `const` before such a name belongs to the pointer and not to what it points to.
            raise _Unreadable(f"the type {word} is a pointer, an array or a function")
        else:
            resolved += _resolve(meaning, types, depth + 1)
    return resolved


def _depths(words: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Returns each word with the number of angle brackets around it. The words inside belong to another type."""
    depth = 0
    for word in words:
        depth -= word == ">"
        yield word, depth
        depth += word == "<"


def _own(words: Sequence[str]) -> list[str]:
    """Returns the words outside of angle brackets."""
    return [word for word, depth in _depths(words) if depth == 0]


def _without_const(words: Sequence[str]) -> list[str]:
    """Returns the words without a `const` that is outside of angle brackets."""
    return [word for word, depth in _depths(words) if word != "const" or depth]


def _position(words: Sequence[str], token: str) -> int:
    """Returns the index of a token outside of angle brackets, or the length if there is none."""
    found = (index for index, (word, depth) in enumerate(_depths(words)) if word == token and depth == 0)
    return next(found, len(words))


def _spell(words: Sequence[str]) -> str:
    text = " ".join(words)
    for mark in ("::", "<", ">", ","):
        text = text.replace(f" {mark}", mark).replace(f"{mark} ", mark)
    return text
