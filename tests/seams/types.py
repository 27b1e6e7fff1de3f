"""Tells the class of an expression from annotations and constructors, where these say it."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tests.seams.sources import FUNCTION, Found, Function, Sources, bindings, unpacked


@dataclass(frozen=True)
class Instance:
    """An object of a class."""

    of: Found


@dataclass(frozen=True)
class Itself:
    """A module, class or function."""

    found: Found


Type: TypeAlias = Instance | Itself | None
# Methods of containers, and functions, that give items of what they are called with: a container counts as one of them.
_OF_CONTAINERS = ("copy", "get", "pop", "values")
_KEEPING_ITEMS = ("iter", "list", "next", "reversed", "set", "sorted", "tuple")


class Types:
    """Infers types of expressions; remembers types of members."""

    def __init__(self, sources: Sources) -> None:
        """Takes sources."""
        self.sources = sources
        self._known: dict[str, Type] = {}

    def annotated(self, module: str, node: ast.expr | None) -> Type:
        """Resolves the type that an annotation in a module names."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self.annotated(module, ast.parse(node.value, mode="eval").body)
            except SyntaxError:
                return None
        if isinstance(node, ast.BinOp):
            return self.annotated(module, node.left) or self.annotated(module, node.right)
        if isinstance(node, ast.Subscript):
            # A container counts as one of its items, a mapping as one of its values.
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            types = [self.annotated(module, part) for part in (*reversed(parts), node.value)]
            return next((type_ for type_ in types if type_ is not None), None)
        if isinstance(node, ast.Name | ast.Attribute):
            found = self.sources.find(module, ast.unparse(node))
            if found is not None and found.class_node is not None:
                return Instance(found)
            match found:
                case Found(nodes=[ast.Assign(value=ast.Name() as aliased), *_]):
                    return self.annotated(found.module, aliased)
        return None

    def named(self, found: Found | None) -> Type:
        """The type of what has a name in a module."""
        if found is None:
            return None
        annotations = [node.annotation for node in found.nodes if isinstance(node, ast.AnnAssign)]
        return self.annotated(found.module, annotations[0]) if annotations else Itself(found)

    def parameters(self, module: str, function: Function) -> dict[str, Type]:
        """Types of a function's parameters, as annotated."""
        every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        return {arg.arg: self.annotated(module, arg.annotation) for arg in every}

    def of(self, module: str, node: ast.expr, names: Mapping[str, Type]) -> Type:
        """Infers the type of an expression.

        Args:
            module: where it stands.
            node: the expression.
            names: types of local variables.
        """
        match node:
            case ast.Name(id=name):
                if name in names:
                    return names[name]
                return self.named(self.sources.find(module, name))
            case ast.BoolOp(values=[first, other]) | ast.IfExp(body=first, orelse=other):
                return self.of(module, first, names) or self.of(module, other, names)
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                return self.of(module, value, names)
            case (
                ast.ListComp(elt=each, generators=loops)
                | ast.SetComp(elt=each, generators=loops)
                | ast.GeneratorExp(elt=each, generators=loops)
                | ast.DictComp(value=each, generators=loops)
            ):
                for loop in loops:
                    names = {**names, **self.bound(module, loop.target, loop.iter, names)}
                return self.of(module, each, names)
            case ast.Attribute(value=value, attr=attribute):
                return self.member(self.of(module, value, names), attribute)
            case ast.Subscript(value=value):
                owner = self.of(module, value, names)
                item = self._callee(owner, "__getitem__")
                return owner if item is None else self._result(item)
            case ast.Call(func=ast.Name(id="super")):
                return names.get("super()")
            case ast.Call(func=ast.Attribute(value=value, attr=method)):
                owner = self.of(module, value, names)
                found = self._callee(owner, method)
                return owner if found is None and method in _OF_CONTAINERS else self._result(found)
            case ast.Call(func=ast.Name(id="type"), args=[value]):
                owner = self.of(module, value, names)
                return Itself(owner.of) if isinstance(owner, Instance) else None
            case ast.Call(func=ast.Name(id=function), args=[value, *_]) if function in _KEEPING_ITEMS:
                return self.of(module, value, names)
            case ast.Call(func=func):
                type_ = self.of(module, func, names)
                if isinstance(type_, Itself):
                    return self._result(type_.found)
                return self._result(self.sources.find(module, func.id)) if isinstance(func, ast.Name) else None
        return None

    def bound(
        self, module: str, target: ast.expr, value: ast.expr | None, names: Mapping[str, Type]
    ) -> dict[str, Type]:
        """Types of the names that an assignment, or a loop over `value`, binds."""
        return {
            name.id: None if each is None else self.of(module, each, names)
            for name, each in unpacked(target, value)
            if isinstance(name, ast.Name)
        }

    def _callee(self, owner: Type, method: str) -> Found | None:
        if isinstance(owner, Instance) or (isinstance(owner, Itself) and owner.found.class_node is not None):
            found = self.sources.definitions(owner.of if isinstance(owner, Instance) else owner.found, method)
            return found[0] if found else None
        if isinstance(owner, Itself):
            return self.sources.find(owner.found.module, f"{owner.found.name}.{method}".strip("."))
        return None

    def _result(self, callee: Found | None) -> Type:
        if callee is None:
            return None
        if callee.class_node is not None:
            return Instance(callee)
        function = next((node for node in callee.nodes if isinstance(node, FUNCTION)), None)
        return self.annotated(callee.module, function.returns) if function is not None else None

    def member(self, owner: Type, name: str) -> Type:
        """The type of an attribute."""
        if isinstance(owner, Itself) and not owner.found.name:
            found = self.sources.find(owner.found.module, name)
            return Itself(found) if found is not None and (found.class_node or not found.name) else None
        if not isinstance(owner, Instance):
            return None
        for found in self.sources.definitions(owner.of, name):
            if found.key not in self._known:
                # Also ends circles.
                self._known[found.key] = None
                self._known[found.key] = self._of_member(owner.of, found)
            if self._known[found.key] is not None:
                return self._known[found.key]
        return None

    def _of_member(self, owner: Found, found: Found) -> Type:
        for node, scope in zip(found.nodes, found.scope, strict=True):
            type_: Type = None
            if isinstance(node, FUNCTION):
                type_ = self.annotated(found.module, node.returns)
            elif isinstance(node, ast.AnnAssign):
                type_ = self.annotated(found.module, node.annotation)
            if type_ is None and isinstance(node, ast.AnnAssign | ast.Assign):
                names = {} if scope is None else self.parameters(found.module, scope)
                names["self"] = Instance(owner)
                member = found.name.rpartition(".")[2]
                values = [value for name, value in bindings(node) if ast.unparse(name) in (member, f"self.{member}")]
                type_ = next((self.of(found.module, value, names) for value in values if value is not None), None)
            if type_ is not None:
                return type_
        return None
