"""Records a name of vLLM: its signature, and a hash of its body."""

import ast
import hashlib
from dataclasses import dataclass

from tests.seams.sources import FUNCTION, Found, Function, Sources

_KINDS = ("property", "cached_property", "staticmethod", "classmethod", "contextmanager")
# Of a syntax tree: what has no meaning, or is there in some versions of Python only.
_SKIPPED = ("ctx", "kind", "type_comment")


@dataclass(frozen=True)
class Pin:
    """State of a name when the plugin was written against it.

    Attributes:
        signature: of a function its kind and parameters with defaults, of a class its bases, of a value its annotation.
        body: hash of the code without comments, docstrings and annotations of parameters; empty for a class.
    """

    signature: tuple[str, ...]
    body: str


def pin(sources: Sources, module: str, name: str) -> Pin | None:
    """Describes a name; None if there is no such name.

    `Class.__init__` of a class without one, such as a dataclass, is described by its fields.
    """
    class_name, _, member = name.rpartition(".")
    if member == "__init__" and (found := sources.find(module, class_name)) is not None and found.class_node:
        init = sources.definitions(found, member)
        return _describe(init[0]) if init else Pin(tuple(_fields(sources, found)), "")
    found = sources.find(module, name)
    return None if found is None else _describe(found)


def _describe(found: Found) -> Pin:
    if (node := found.class_node) is not None:
        return Pin(tuple(ast.unparse(base) for base in node.bases), "")
    functions = [node for node in found.nodes if isinstance(node, FUNCTION)]
    if functions:
        # The last one counts; those before it are overloads.
        return Pin(tuple(_signature(functions[-1])), _hash([[node.decorator_list, node.body] for node in functions]))
    values = [node for node in found.nodes if isinstance(node, ast.Assign | ast.AnnAssign)]
    annotations = {ast.unparse(node.annotation): None for node in values if isinstance(node, ast.AnnAssign)}
    return Pin(tuple(annotations), _hash([node.value for node in values]) if values else "")


def _signature(node: Function) -> list[str]:
    decorators = [ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list]
    kinds = [f"@{kind}" for kind in decorators if kind in _KINDS]
    kinds += ["async"] if isinstance(node, ast.AsyncFunctionDef) else []
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
    parameters = [_parameter(arg, default) for arg, default in zip(positional, defaults, strict=True)]
    if args.posonlyargs:
        parameters.insert(len(args.posonlyargs), "/")
    if args.vararg is not None:
        parameters.append(f"*{args.vararg.arg}")
    elif args.kwonlyargs:
        parameters.append("*")
    parameters += [_parameter(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg is not None:
        parameters.append(f"**{args.kwarg.arg}")
    return kinds + parameters


def _parameter(arg: ast.arg, default: ast.expr | None) -> str:
    return arg.arg if default is None else f"{arg.arg}={ast.unparse(default)}"


def _fields(sources: Sources, found: Found) -> list[str]:
    """Fields with defaults that make a dataclass's constructor, the bases' first."""
    fields: dict[str, str] = {}
    for each in reversed(sources.mro(found.module, found.name)):
        node = each.class_node
        for statement in node.body if node is not None else ():
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                if "ClassVar" in ast.unparse(statement.annotation):
                    continue
                name = statement.target.id
                fields[name] = name if statement.value is None else f"{name}={ast.unparse(statement.value)}"
    return list(fields.values())


def _hash(code: object) -> str:
    return hashlib.sha256(repr(_shape(code)).encode()).hexdigest()[:12]


def _shape(code: object) -> object:
    """A syntax tree without positions and docstrings, the same in every supported version of Python."""
    if isinstance(code, list):
        return [_shape(part) for part in code if not _is_text(part)]
    if not isinstance(code, ast.AST):
        return code
    parts = [(field, value) for field, value in ast.iter_fields(code) if field not in _SKIPPED]
    return [type(code).__name__, *((field, _shape(value)) for field, value in parts if value not in (None, []))]


def _is_text(node: object) -> bool:
    """Whether a statement is a string by itself: a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
