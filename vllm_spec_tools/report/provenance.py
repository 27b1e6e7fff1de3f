"""Provenance of figures: versions, machine, models, command line."""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("vllm", "torch", "transformers", "numpy")


def provenance(
    arguments: Sequence[str],
    seed: int,
    prompts: Sequence[str],
    models: Mapping[str, str] | None = None,
    program: str = "vllm-spec",
    packages: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns versions, commit, machine, models, arguments, seed and date.

    Args:
        models: folder or hub name by role, such as "target".
        packages: distributions whose versions matter besides `_PACKAGES`.
    """
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "program": program,
        "arguments": list(arguments),
        "seed": seed,
        "commit": commit_of(_ROOT),
        "models": dict(models or {}),
        "prompts": {"count": len(prompts), "sha256": hashlib.sha256("\0".join(prompts).encode()).hexdigest()},
        "versions": {"vllm_spec_plugin": _version("vllm-spec-plugin"), "python": platform.python_version()}
        | {name: _version(name) for name in (*_PACKAGES, *packages)},
        "machine": {
            "cpu": _cpu_name(),
            "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
            "system": platform.platform(),
        },
    }


def command_line(provenance: Mapping[str, Any]) -> str:
    """Returns the command that made the figures."""
    return f"{provenance.get('program', 'vllm-spec')} {shlex.join(provenance['arguments'])}".rstrip()


def machine_text(provenance: Mapping[str, Any], *, short: bool = False) -> str:
    """Returns the machine in words; unless `short` also versions, seed, rounds and date."""
    machine, versions = provenance["machine"], provenance["versions"]
    text = f"{machine['cores']} {'core' if machine['cores'] == 1 else 'cores'} of {machine['cpu']}"
    if short:
        return text
    ours = f"vllm-spec-plugin {versions['vllm_spec_plugin']}, " if "vllm_spec_plugin" in versions else ""
    vllm = f"vLLM {versions['vllm']}, " if versions["vllm"] else ""
    rounds = f", rounds: {provenance['rounds']}" if "rounds" in provenance else ""
    return f"{text}, {ours}{vllm}seed {provenance['seed']}{rounds}, {provenance['date'][:10]}."


def models_text(provenance: Mapping[str, Any]) -> str:
    """Returns the models by role; empty without models."""
    return ", ".join(f"{role}: {model_name(name)}" for role, name in provenance.get("models", {}).items())


def model_name(name: str) -> str:
    """Returns a folder's last part or a hub name without its owner, such as "bundled target"."""
    is_bundled = Path(name).parent.parts[-2:] == ("vllm_spec_plugin", "models")
    return f"bundled {Path(name).name}" if is_bundled else Path(name).name


def commit_of(root: Path) -> str | None:
    """Returns the commit of a checkout, with "+" if tracked files differ from it; None of another folder."""
    if not (root / ".git").exists():
        return None

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
