"""Tells the class of an expression from annotations and constructors, where these say it."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.seams.sources import FUNCTION, Found, Function, Sources


@dataclass(frozen=True)
class Instance:
    """An object of a class."""

    of: Found


@dataclass(frozen=True)
class Itself:
    """A module, class or function."""

    found: Found


Type: TypeAlias = Instance | Itself | None
# By the name of a variable: the classes that it may be of, as "module:Class".
Conventions: TypeAlias = Mapping[str, Sequence[str]]


class Types:
    """Infers types of expressions; remembers types of members."""

    def __init__(self, sources: Sources, conventions: Conventions) -> None:
        """Takes sources, and what variables of the plugin are called that vLLM's objects are held in."""
        self.sources = sources
        self._conventions = conventions
        self._known: dict[str, Type] = {}

    def by_name(self, variable: str) -> list[Found]:
        """The classes that a variable of that name may be of by convention."""
        names = [key.split(":") for key in self._conventions.get(variable, ())]
        return [found for module, name in names if (found := self.sources.find(module, name)) is not None]

    def annotated(self, module: str, node: ast.expr | None) -> Type:
        """What an annotation in a module stands for."""
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
            return Instance(found) if found is not None and found.class_node is not None else None
        return None

    def parameters(self, module: str, function: Function) -> dict[str, Type]:
        """Types of a function's parameters, as annotated; those without a type are left out."""
        every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        types = {arg.arg: self.annotated(module, arg.annotation) for arg in every}
        return {name: type_ for name, type_ in types.items() if type_ is not None}

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
                if (found := self.sources.find(module, name)) is not None and (found.class_node or not found.name):
                    return Itself(found)
                classes = self.by_name(name)
                return Instance(classes[0]) if classes else None
            case ast.Attribute(value=value, attr=attribute):
                return self.member(self.of(module, value, names), attribute)
            case ast.Subscript(value=value):
                owner = self.of(module, value, names)
                item = self._callee(owner, "__getitem__")
                return owner if item is None else self._result(item)
            case ast.Call(func=ast.Name(id="super")):
                return names.get("super()")
            case ast.Call(func=ast.Attribute(value=value, attr=method)):
                return self._result(self._callee(self.of(module, value, names), method))
            case ast.Call(func=func):
                callee = self.of(module, func, names)
                if isinstance(callee, Itself):
                    return self._result(callee.found)
                return self._result(self.sources.find(module, func.id)) if isinstance(func, ast.Name) else None
        return None

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
            if type_ is None and isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
                names: dict[str, Type] = {"self": Instance(owner)}
                if scope is not None:
                    names |= self.parameters(found.module, scope)
                type_ = self.of(found.module, node.value, names)
            if type_ is not None:
                return type_
        return None
