"""Where figures come from: what they cannot be read without."""

import hashlib
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("vllm", "torch", "transformers", "numpy")


def provenance(arguments: Sequence[str], seed: int, prompts: Sequence[str]) -> dict[str, Any]:
    """Versions, machine, arguments, seed and date.

    Args:
        arguments: the command line, without the program.
        seed: of the first round.
        prompts: all that were used.
    """
    from vllm_spec_plugin import __version__

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "arguments": list(arguments),
        "seed": seed,
        "prompts": {"count": len(prompts), "sha256": hashlib.sha256("\0".join(prompts).encode()).hexdigest()},
        "versions": {"vllm_spec_plugin": __version__, "python": platform.python_version()}
        | {name: _version(name) for name in _PACKAGES},
        "machine": {
            "cpu": _cpu_name(),
            "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
            "system": platform.platform(),
        },
    }


def page_head(provenance: Mapping[str, Any], rounds: int) -> tuple[str, str]:
    """Returns the first paragraphs of a page of figures: the command, and what they were measured on.

    Args:
        provenance: what `provenance` gives.
        rounds: how often each arm did everything.
    """
    machine = provenance["machine"]
    cores = "1 core" if machine["cores"] == 1 else f"{machine['cores']} cores"
    return (
        f"```\nvllm-spec {shlex.join(provenance['arguments'])}\n```",
        f"{cores} of {machine['cpu']}, vLLM {provenance['versions']['vllm']}, seed "
        f"{provenance['seed']}, rounds: {rounds}, {provenance['date'][:10]}.",
    )


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
