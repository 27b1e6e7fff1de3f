"""Finds what a package uses of vLLM's names: imports, overridden methods, and members of vLLM's objects."""

import ast
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from tests.seams.sources import Found, Function, Sources, targets
from tests.seams.types import Conventions, Instance, Itself, Type, Types

# Builtins and helpers that are given an object and the name of one of its members.
_BY_STRING = ("getattr", "hasattr", "setattr")
# Helpers of the plugin that replace a member.
_REPLACING = ("wrap", "_replace")


def modules_in(top: Path, package: str) -> list[str]:
    """Names of all modules of a package, in the folder `top`."""
    files = sorted((top / package).rglob("*.py"))
    parts = [file.relative_to(top).with_suffix("").parts for file in files]
    return [".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts]


class Uses(ast.NodeVisitor):
    """The names of one package that another one uses.

    Attributes:
        found: per name, "module:Class.method", the modules that use it.
    """

    def __init__(self, sources: Sources, package: str, conventions: Conventions, held_in: Iterable[str]) -> None:
        """Takes what to look for.

        Args:
            sources: reads both packages.
            package: the one whose names are looked for.
            conventions: see `Types`.
            held_in: prefixes of the modules that `conventions` are for.
        """
        self.sources, self.package = sources, package
        self.found: dict[str, set[str]] = {}
        self._held_in = tuple(held_in)
        self._with_conventions, self._elsewhere = Types(sources, conventions), Types(sources, {})

    def scan(self, module: str) -> None:
        """Adds what a module uses."""
        self._module = module
        self._types = self._with_conventions if module.startswith(self._held_in) else self._elsewhere
        self._names: dict[str, Type] = {}
        self._self: Found | None = None
        if (parsed := self.sources.parsed(module)) is not None:
            self.visit(parsed[0])

    def _add(self, found: Found | None, module: str, *, is_replaced: bool = False) -> None:
        """Notes that `module` uses a name, if it is the package's and not public, or is replaced.

        Public are the classes that the package's top level exports, with all members that have no underscore.
        """
        if found is None or found.module.split(".")[0] != self.package or not found.name:
            return
        head, _, member = found.name.partition(".")
        at, top = self.sources.find(found.module, head), self.sources.find(self.package, head)
        is_public = at is not None and top is not None and at.key == top.key
        if not is_public or is_replaced or (member.startswith("_") and member != "__init__"):
            self.found.setdefault(found.key, set()).add(module)

    def _type(self, node: ast.expr) -> Type:
        return self._types.of(self._module, node, self._names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Notes imported names as they are imported, wherever they are defined."""
        source = self.sources.absolute(self._module, node)
        for alias in node.names:
            found = self.sources.find(source, alias.name)
            if found is not None:
                self._names[alias.asname or alias.name] = Itself(found)
            is_module = found is not None and not found.name
            if source.startswith(f"{self.package}.") and not is_module:
                self._add(Found(source, alias.name), self._module)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Notes which methods a class overrides, in all its bases."""
        every = self.sources.mro(self._module, node.name)
        theirs = [each for each in every if each.module.split(".")[0] == self.package]
        for ours in every if theirs else ():
            for member in self.sources.members(ours.module, ours.name) if ours not in theirs else ():
                for found in self.sources.definitions(every[0], member):
                    self._add(found, ours.module)
        outer, self._self = self._self, every[0] if every else None
        self.generic_visit(node)
        self._self = outer

    def _visit_function(self, node: Function) -> None:
        outer, self._names = self._names, dict(self._names)
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        types = self._types.parameters(self._module, node)
        for arg in every:
            unknown = arg.annotation is None or ast.unparse(arg.annotation) in ("Any", "Any | None")
            if arg.arg in types:
                self._names[arg.arg] = types[arg.arg]
            elif unknown:
                self._names.pop(arg.arg, None)
            else:
                self._names[arg.arg] = None
        if self._self is not None and every and every[0].arg == "self":
            self._names["self"] = self._names["super()"] = Instance(self._self)
        self.generic_visit(node)
        self._names = outer

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def visit_Assign(self, node: ast.Assign) -> None:
        """Binds local variables."""
        self.visit(node.value)
        for target in node.targets:
            self._bind(target, node.value)
        for target in targets(node):
            self.visit(target)

    def visit_For(self, node: ast.For) -> None:
        """Binds the variable of a loop."""
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        for generator in node.generators:
            self._bind(generator.target, generator.iter)
        self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) else ()
            for part, each in zip_longest(target.elts, values[: len(target.elts)]):
                self._bind(part, each)
        elif isinstance(target, ast.Name):
            self._names.pop(target.id, None)
            if value is not None and (type_ := self._type(value)) is not None:
                self._names[target.id] = type_

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Notes a member of one of vLLM's objects, classes or modules."""
        self._member(node.value, node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Notes constructors, and members that are named by a string."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=[owner, ast.Constant(value=str(member)), *_]) if (
                name in _BY_STRING + _REPLACING
            ):
                self._member(owner, member, is_replaced=name in _REPLACING)
        callee = self._type(node.func)
        if isinstance(callee, Itself) and callee.found.class_node is not None:
            self._add(Found(callee.found.module, f"{callee.found.name}.__init__"), self._module)
        self.generic_visit(node)

    def _member(self, owner: ast.expr, name: str, *, is_replaced: bool = False) -> None:
        sources, type_ = self.sources, self._type(owner)
        if isinstance(type_, Itself) and not type_.found.name:
            self._add(Found(type_.found.module, name), self._module)
            return
        classes = [type_.of] if isinstance(type_, Instance) else [type_.found] if isinstance(type_, Itself) else []
        is_theirs = not classes or classes[0].module.split(".")[0] == self.package
        # An annotation that is none of theirs is known to be that.
        if isinstance(owner, ast.Name) and is_theirs and self._names.get(owner.id, True) is not None:
            classes += self._types.by_name(owner.id)
        elif isinstance(owner, ast.Attribute) and is_theirs:
            classes += self._types.by_name(owner.attr.lstrip("_"))
        for each in classes:
            if every := sources.definitions(each, name):
                for found in every:
                    self._add(found, self._module, is_replaced=is_replaced)
                return
