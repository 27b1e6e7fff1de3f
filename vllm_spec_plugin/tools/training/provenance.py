"""Where heads come from."""

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from vllm_spec_plugin import __version__

_PACKAGES = ("torch", "transformers", "safetensors")


def provenance(
    command: str, arguments: dict[str, Any], data_sha256: str, tokens: dict[str, int], seconds: float, device: str
) -> dict[str, Any]:
    """What one would need to make the heads again.

    Args:
        command: of `vllm-spec`.
        arguments: of the command.
        data_sha256: of all texts.
        tokens: per kind of text, how many tokens there were to learn from.
        seconds: that it took, with earlier runs that were interrupted.
        device: that it ran on.
    """
    return {
        "command": f"vllm-spec {command}",
        "arguments": arguments,
        "data_sha256": data_sha256,
        "training_tokens": tokens,
        "seconds": round(seconds, 1),
        "device": device,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"vllm_spec_plugin": __version__, "python": platform.python_version()}
        | {name: version(name) for name in _PACKAGES},
    }
