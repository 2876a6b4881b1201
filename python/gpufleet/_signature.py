"""Finds a kernel in CUDA C++ and reads its parameters.

`const T*` is an input; `T*` is also returned. If the parameters can not be read, for example because of a macro with
parameters, or only the compiler knows a type, the caller's NumPy types determine it. The extension module reads the
code, as it does for the `gpufleet` command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpufleet import _core
from gpufleet._element import Element, element_of
from gpufleet._errors import InvalidJob

if TYPE_CHECKING:
    from gpufleet._core import _Parameter

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


def signature(code: str, entry: str, options: Iterable[str] = ()) -> Signature:
    """Reads the signature of a kernel.

    >>> found = signature('extern "C" __global__ void scale(float *x, float a) {}', "scale")
    >>> [str(parameter) for parameter in found.parameters]
    ["'x' (float*)", "'a' (float)"]
    """
    match _core.signature(code, entry, list(options)):
        case ("read", parameters):
            return Signature(entry, _parameters(parameters))
        case ("open", problem):
            return Signature(entry, None, problem)
        case ("refused", problem):
            raise SignatureError(problem)


def c_kernels(code: str, options: Iterable[str] = ()) -> list[str]:
    """Returns the names of the `extern "C"` kernels, in order.

    >>> c_kernels('extern "C" __global__ void a(int n) {} __global__ void b(int n) {}')
    ['a']
    """
    return _core.c_kernels(code, list(options))


def _parameters(found: Sequence[_Parameter]) -> tuple[Parameter, ...]:
    """Makes the parameters. One without a name of its own is named by its index."""
    parameters = [
        Parameter(name or f"arg{index}", spelled, element_of(base), is_pointer, is_input)
        for index, (name, spelled, base, is_pointer, is_input) in enumerate(found)
    ]
    uses = Counter(parameter.name for parameter in parameters)
    return tuple(
        replace(parameter, name=f"arg{index}") if uses[parameter.name] > 1 else parameter
        for index, parameter in enumerate(parameters)
    )
