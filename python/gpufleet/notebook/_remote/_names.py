"""Finds the names of a notebook that a cell needs."""

from __future__ import annotations

import ast
import dis
import symtable
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

__all__ = ["assigned_by", "needed", "read_by", "submodules"]


class _Synchronous(ast.NodeTransformer):
    """Leaves `async` and `await` out, which the table of symbols takes in functions alone."""

    def visit_Await(self, node: ast.Await) -> ast.AST:
        found: ast.AST = self.visit(node.value)
        return found

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        self.generic_visit(node)
        return ast.For(node.target, node.iter, node.body, node.orelse, lineno=0)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        self.generic_visit(node)
        return ast.With(node.items, node.body, lineno=0)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        return ast.FunctionDef(node.name, node.args, node.body, node.decorator_list, node.returns, lineno=0)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.is_async = 0
        return node


def read_by(tree: ast.Module) -> set[str]:
    """Returns the names that a cell may read before it has assigned them.

    >>> sorted(read_by(ast.parse("x = 1\\nfor i in data:\\n    y = f(i, x)\\nz += 1")))
    ['data', 'f', 'z']
    """
    return _read(_Synchronous().visit(tree).body, set())


def assigned_by(tree: ast.Module) -> set[str]:
    """Returns the names that the statements of a cell assign, outside of its functions.

    >>> sorted(assigned_by(ast.parse("with open(path) as file:\\n    text, lines = read(file)")))
    ['file', 'lines', 'text']
    """
    table = symtable.symtable(ast.unparse(ast.fix_missing_locations(_Synchronous().visit(tree))), "<cell>", "exec")
    return {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}


def _read(statements: Iterable[ast.stmt], assigned: set[str]) -> set[str]:
    """Returns what statements read. Adds to `assigned` what they are sure to assign."""
    found: set[str] = set()
    for statement in statements:
        found |= _read_by(statement, assigned) - assigned
        assigned |= _assigned_by(statement)
    return found


def _read_by(statement: ast.stmt, assigned: set[str]) -> set[str]:
    match statement:
        case ast.For(target, source, body, orelse):
            return _names(source) | _read([*body, *orelse], assigned | _targets([target]))
        case ast.With(items, body):
            found, known = set[str](), set(assigned)
            for item in items:
                found |= _names(item.context_expr) - known
                known |= _targets([item.optional_vars])
            return found | _read(body, known)
        case ast.If(test, body, orelse) | ast.While(test, body, orelse):
            return _names(test) | _read(body, set(assigned)) | _read(orelse, set(assigned))
        case ast.AugAssign(target, _, value):
            return _names(value) | {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
        case ast.Delete(targets):
            return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        case _:
            return _names(statement)


def _assigned_by(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Assign(targets):
            return _targets(targets)
        case ast.AnnAssign(target, _, value) if value is not None:
            return _targets([target])
        case ast.With(items, body):
            return _targets(item.optional_vars for item in items).union(*map(_assigned_by, body))
        case ast.Import(names) | ast.ImportFrom(_, names):
            return {(alias.asname or alias.name).partition(".")[0] for alias in names}
        case ast.FunctionDef(name) | ast.ClassDef(name):
            return {name}
    return set()


def _targets(targets: Iterable[ast.expr | None]) -> set[str]:
    nodes = (node for target in targets if target is not None for node in ast.walk(target))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _names(node: ast.AST) -> set[str]:
    """Returns the names of the notebook that a statement or an expression refers to, also in functions."""
    table = symtable.symtable(ast.unparse(ast.fix_missing_locations(node)), "<cell>", "exec")
    here = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    return here | {name for child in table.get_children() for name in _globals(child)}


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_global() and (symbol.is_referenced() or symbol.is_assigned()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child)


def needed(names: Iterable[str], namespace: Mapping[str, Any]) -> list[str]:
    """Returns those names that the notebook has, and the names that their functions and classes use, and so on."""
    found: dict[str, None] = {}
    waiting = [name for name in names if name in namespace]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = None
            waiting += [each for each in _used_by(namespace[name]) if each in namespace]
    # Functions and classes come last, because they have the values that they use with them.
    return sorted(found, key=lambda name: (isinstance(namespace[name], FunctionType | type), name))


def _used_by(value: object) -> Iterator[str]:
    """Yields the global names in the functions of a value that the notebook has defined."""
    if isinstance(value, FunctionType):
        if value.__module__ == "__main__":
            yield from _used_by_code(value.__code__)
        return
    for kind in (value if isinstance(value, type) else type(value)).__mro__:
        if kind.__module__ == "__main__":
            # Libraries look for the class of an object by its name.
            yield kind.__qualname__
            for member in vars(kind).values():
                inner = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                if isinstance(inner, FunctionType):
                    yield from _used_by_code(inner.__code__)


def _used_by_code(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used_by_code(constant)


def submodules(tree: ast.Module, namespace: Mapping[str, Any]) -> list[str]:
    """Returns the modules that the cell reaches through other modules, as in `xml.etree`, which an import loads."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module, path = namespace.get(_root(node)), _path(node)
            if isinstance(module, ModuleType) and f"{module.__name__}.{path}" in sys.modules:
                found.add(f"{module.__name__}.{path}")
    return sorted(found)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _path(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed(parts))
