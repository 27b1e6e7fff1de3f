"""The installed vLLM, as its metadata, code and libraries say; imports nothing of it."""

import ast
import functools
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from packaging.version import Version

# Kernels of a CPU build; those of a CUDA build are in other files.
_CPU_LIBRARIES = ("_C.*so", "_C_AVX*so")
_LIBRARIES = ("_C*so",)


def installed_version() -> str:
    """Returns the version of the installed vLLM, by its metadata; empty if there is none."""
    try:
        return version("vllm")
    except PackageNotFoundError:
        return ""


def is_cpu_build(found: str) -> bool:
    """Whether a version is of a CPU build, as vLLM itself detects it."""
    return "cpu" in found


def installation_fault() -> str:
    """Returns which parts of the installed vLLM do not belong together; empty if all do, or if there is no vLLM."""
    found, spec = installed_version(), find_spec("vllm")
    if spec is None or spec.origin is None:
        return f"its metadata says {found}, but there is no package vllm" if found else ""
    folder = Path(spec.origin).parent
    if not found:
        return f"its code is in {folder}, but no installed distribution is named vllm"
    code = folder / "_version.py"
    match = re.search(r"^__version__ = .*'(.+)'$", code.read_text(), re.MULTILINE) if code.is_file() else None
    if match and Version(match[1]).public != Version(found).public:
        return f"its metadata says {found}, but {code} says {match[1]}"
    is_cpu = is_cpu_build(found)
    if not any(any(folder.glob(pattern)) for pattern in (_CPU_LIBRARIES if is_cpu else _LIBRARIES)):
        names = " or ".join(_CPU_LIBRARIES if is_cpu else _LIBRARIES)
        return f"{folder} has no compiled libraries of {'a CPU' if is_cpu else 'any'} build ({names})"
    return ""


def speculative_keys() -> tuple[str, ...]:
    """Returns the keys of the installed vLLM's speculative config; empty if there is no vLLM.

    Reads the source, as an import takes many seconds.
    """
    for node in _speculative_statements():
        if isinstance(node, ast.ClassDef) and node.name == "SpeculativeConfig":
            fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
            return tuple(field.id for field in fields if isinstance(field, ast.Name) and not field.id.startswith("_"))
    return ()


def _speculative_statements() -> list[ast.stmt]:
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:
        return []
    return _statements(Path(spec.origin).parent / "config" / "speculative.py")


@functools.cache
def _statements(path: Path) -> list[ast.stmt]:
    return ast.parse(path.read_text()).body


def speculative_methods() -> tuple[str, ...]:
    """Returns the methods that the installed vLLM's speculative config may name; empty if there is no vLLM.

    Reads the source, as an import takes many seconds.
    """
    assigned = {
        target.id: node.value
        for node in _speculative_statements()
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def words(name: str) -> Iterator[str]:
        for node in ast.walk(assigned[name]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.Name) and node.id in assigned:
                yield from words(node.id)

    return tuple(words("SpeculativeMethod")) if "SpeculativeMethod" in assigned else ()
