"""Finds what a package uses of vLLM's names: imports, overridden methods, and members of vLLM's objects."""

import ast
from pathlib import Path

from tests.seams.sources import Found, Function, Sources
from tests.seams.types import Instance, Itself, Type, Types

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

    def __init__(self, sources: Sources, package: str) -> None:
        """Takes what reads both packages, and the one whose names are looked for."""
        self.sources, self.package = sources, package
        self.found: dict[str, set[str]] = {}
        self._types = Types(sources)

    def scan(self, module: str) -> None:
        """Adds what a module uses."""
        self._module = module
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
            self._names[alias.asname or alias.name] = self._types.named(found)
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
        parameters = self._types.parameters(self._module, node)
        self._names |= parameters
        if self._self is not None and "self" in parameters:
            self._names["self"] = self._names["super()"] = Instance(self._self)
        self.generic_visit(node)
        self._names = outer

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def visit_Assign(self, node: ast.Assign) -> None:
        """Binds local variables."""
        self.visit(node.value)
        for target in node.targets:
            self._bind(target, node.value)
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Binds a local variable to what its annotation says."""
        self.generic_visit(node)
        self._bind(node.target, node.value)
        name = ast.unparse(node.target)
        if (type_ := self._types.annotated(self._module, node.annotation)) is not None:
            self._names[name] = type_
        else:
            self._narrow(name, node.annotation)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        """Binds a local variable."""
        self.generic_visit(node)
        self._bind(node.target, node.value)

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
        self._names |= self._types.bound(self._module, target, value, self._names)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Notes the class of a variable that is compared with one; it counts from there on."""
        match node:
            case ast.Compare(left=ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=name)]), comparators=[of]):
                self._narrow(name, of)
        self.generic_visit(node)

    def _narrow(self, name: str, of: ast.expr) -> None:
        if isinstance(found := self._type(of), Itself):
            self._names[name] = Instance(found.found)

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
            case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), of]):
                self._narrow(name, of)
        callee = self._type(node.func)
        if isinstance(callee, Itself) and callee.found.class_node is not None:
            self._add(Found(callee.found.module, f"{callee.found.name}.__init__"), self._module)
        self.generic_visit(node)

    def _member(self, owner: ast.expr, name: str, *, is_replaced: bool = False) -> None:
        sources, type_ = self.sources, self._type(owner)
        if isinstance(type_, Itself) and not type_.found.name:
            self._add(Found(type_.found.module, name), self._module)
            return
        owner_class = type_.of if isinstance(type_, Instance) else type_.found if type_ is not None else None
        for found in sources.definitions(owner_class, name) if owner_class is not None else ():
            self._add(found, self._module, is_replaced=is_replaced)
