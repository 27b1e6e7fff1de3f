"""Reads Python packages by parsing their files: nothing is imported, so a wheel need not be installed."""

import ast
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
# Holds a package's folder: a folder, or a wheel.
Root: TypeAlias = Path | zipfile.Path


@dataclass(frozen=True)
class Found:
    """A module, class, function or value.

    Attributes:
        module: name of the module that defines it.
        name: its name in there, "Class.method"; empty for a module.
        nodes: its definitions: several where branches, overloads or methods define it.
        scope: the function that a value is assigned in, if any; per node.
    """

    module: str
    name: str
    nodes: tuple[ast.AST, ...] = ()
    scope: tuple[Function | None, ...] = ()

    @property
    def key(self) -> str:
        """Its full name, "module:Class.method"."""
        return f"{self.module}:{self.name}"

    @property
    def class_node(self) -> ast.ClassDef | None:
        """The class statement, of a class."""
        return next((node for node in self.nodes if isinstance(node, ast.ClassDef)), None)


class Sources:
    """Finds definitions by name, through imports and base classes."""

    def __init__(self, roots: Mapping[str, Root]) -> None:
        """Takes where packages are, by their names; others are not read."""
        self._roots = roots
        self.parsed = cache(self._parsed)
        self.find = cache(self._find)
        self.names = cache(self._names)
        self.mro = cache(self._mro)
        self.members = cache(self._members)

    def _parsed(self, module: str) -> tuple[ast.Module, bool] | None:
        """A module's syntax tree, and whether it is a package; None if there is no such module."""
        path = module.replace(".", "/")
        for name, is_package in ((f"{path}/__init__.py", True), (f"{path}.py", False)):
            root = self._roots.get(path.split("/")[0])
            if root is not None and (file := root / name).is_file():
                return _tree(file.read_text(encoding="utf-8")), is_package
        return None

    def _names(self, module: str) -> dict[str, list[ast.stmt]] | None:
        """The statements that bind each name at a module's top level, also under `if`, `try` and `with`."""
        found = self.parsed(module)
        if found is None:
            return None
        names: dict[str, list[ast.stmt]] = {}
        for statement in _flat(found[0].body):
            for name in _bound(statement):
                names.setdefault(name, []).append(statement)
        return names

    def _find(self, module: str, name: str = "") -> Found | None:
        """Finds a name of a module, or a member of a class in it; follows imports, and base classes for members."""
        head, _, rest = name.partition(".")
        names = self.names(module)
        if names is None:
            return None
        if not head:
            return Found(module, "")
        found = self._top(module, head, names)
        if found is None or not rest:
            return found
        if not found.name:
            return self.find(found.module, rest)
        definitions = self.definitions(found, rest)
        return definitions[0] if definitions else None

    def _top(self, module: str, name: str, names: dict[str, list[ast.stmt]]) -> Found | None:
        own: list[ast.AST] = []
        for statement in names.get(name, ()):
            if isinstance(statement, ast.ImportFrom | ast.Import):
                if (found := self._imported(module, name, statement)) is not None:
                    return found
            else:
                own.append(statement)
        if own:
            # An alias, as `Runner = object`, says nothing where an import or a class says more.
            return Found(module, name, tuple(own), (None,) * len(own))
        return self.find(f"{module}.{name}")

    def _imported(self, module: str, name: str, statement: ast.stmt) -> Found | None:
        if isinstance(statement, ast.Import):
            target = next(a.name for a in statement.names if name in (a.asname, a.name.split(".")[0]))
            return self.find(target)
        assert isinstance(statement, ast.ImportFrom)
        original = next(alias.name for alias in statement.names if name in (alias.asname, alias.name))
        source = self.absolute(module, statement)
        return None if (source, original) == (module, name) else self.find(source, original)

    def absolute(self, module: str, statement: ast.ImportFrom) -> str:
        """The module that a `from` statement in `module` imports from."""
        if not statement.level:
            return statement.module or ""
        found = self.parsed(module)
        parts = module.split(".") if found and found[1] else module.split(".")[:-1]
        parts = parts[: len(parts) - statement.level + 1]
        return ".".join([*parts, *([statement.module] if statement.module else [])])

    def _mro(self, module: str, name: str) -> tuple[Found, ...]:
        """A class and its known base classes, nearest first, each once."""
        found = self.find(module, name)
        if found is None or (node := found.class_node) is None:
            return ()
        order = {found.key: found}
        for base in node.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            at = self.find(found.module, ast.unparse(base)) if isinstance(base, ast.Name | ast.Attribute) else None
            if at is not None and at.key != found.key:
                order.update({each.key: each for each in self.mro(at.module, at.name) if each.key not in order})
        return tuple(order.values())

    def _members(self, module: str, name: str) -> dict[str, Found]:
        """The members that a class itself defines: methods, fields and attributes that its methods set on `self`."""
        found = self.find(module, name)
        node = found.class_node if found is not None else None
        if found is None or node is None:
            return {}
        members: dict[str, list[tuple[ast.AST, Function | None]]] = {}
        for statement in _flat(node.body):
            for bound in _bound(statement):
                members.setdefault(bound, []).append((statement, None))
        for method in [statement for statement in _flat(node.body) if isinstance(statement, FUNCTION)]:
            for inner in ast.walk(method):
                for attribute in _set_on_self(inner):
                    members.setdefault(attribute, []).append((inner, method))
        return {
            member: Found(found.module, f"{found.name}.{member}", *(tuple(column) for column in zip(*own, strict=True)))
            for member, own in members.items()
        }

    def definitions(self, class_found: Found, member: str) -> list[Found]:
        """All definitions of a member in a class and its bases, nearest first; abstract ones if there are no others."""
        every = [self.members(each.module, each.name) for each in self.mro(class_found.module, class_found.name)]
        found = [members[member] for members in every if member in members]
        return [each for each in found if not _is_abstract(each)] or found


@cache
def _tree(text: str) -> ast.Module:
    """Parses a file; two vLLMs have many in common."""
    return ast.parse(text)


def _is_abstract(found: Found) -> bool:
    return all(
        (isinstance(node, FUNCTION) and ast.unparse(node.body[-1]).startswith(("raise NotImplementedError", "...")))
        or (isinstance(node, FUNCTION) and any("abstract" in ast.unparse(d) for d in node.decorator_list))
        for node in found.nodes
    )


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a body and of the branches in it."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                yield from _flat(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", ()):
                yield from _flat(handler.body)


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Import):
        return [alias.asname or alias.name.split(".")[0] for alias in statement.names]
    if isinstance(statement, ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    return [target.id for target, _ in bindings(statement) if isinstance(target, ast.Name)]


def _set_on_self(node: ast.AST) -> list[str]:
    return [
        target.attr
        for target, _ in bindings(node)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    ]


def bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Lists the targets of an assignment, with values if the statement shows them; nothing for other statements."""
    if isinstance(node, ast.AnnAssign):
        yield node.target, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from unpacked(target, node.value)


def unpacked(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Single targets of an assignment, or of a loop over `value`, with what they get; None where that is not shown."""
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value
        return
    parts: list[ast.expr | None]
    match value:
        case ast.Tuple(elts=elements) | ast.Call(func=ast.Name(id="zip"), args=elements):
            parts = [*elements]
        case (
            ast.Call(func=ast.Name(id="enumerate"), args=[each, *_])
            | ast.Call(func=ast.Attribute(value=each, attr="items"))
        ):
            parts = [None, each]
        case _:
            # A container counts as one of its items.
            parts = [value] * len(target.elts)
    for part, own in zip_longest(target.elts, parts[: len(target.elts)]):
        yield from unpacked(part, own)
