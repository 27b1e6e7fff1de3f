"""Engines that are compared on a GPU: own proposers and vLLM's, both runners, scheduling modes, graph modes."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.fixed_length import fixed_length, native
from vllm_spec_plugin.models import model_path

V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
_EAGER = {"enforce_eager": True}
_FULL = {"compilation_config": {"cudagraph_mode": "FULL_AND_PIECEWISE"}}
_PIECEWISE = {"compilation_config": {"cudagraph_mode": "PIECEWISE"}}
_SYNCHRONOUS = {"async_scheduling": False}


@dataclass(frozen=True)
class Setup:
    """An engine.

    Attributes:
        speculation: what vLLM is given: a plugin.yaml's path, vLLM's own settings, or None.
        arguments: of `vllm.LLM`.
        environment: of its process.
    """

    speculation: str | dict[str, Any] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def _native(method: str, model: str) -> str:
    return native(json.dumps({"method": method, "model": str(model_path(model))}), 4)


def _own(name: str, **arguments: Any) -> Setup:
    return Setup(fixed_length(name), arguments, V1)


# In the order of their worth.
ARMS = {
    "none, V1": Setup(None, _EAGER, V1),
    "none, V2": Setup(None, _EAGER),
    "native draft_model": Setup(_native("draft_model", "draft")),
    "native eagle3": Setup(_native("eagle3", "eagle3")),
    "suffix": _own("suffix"),
    "draft_model": _own("draft_model"),
    "native draft_model, V1": Setup(_native("draft_model", "draft"), _EAGER, V1),
    "native draft_model, synchronous": Setup(_native("draft_model", "draft"), _EAGER | _SYNCHRONOUS),
    "native draft_model, eager": Setup(_native("draft_model", "draft"), _EAGER),
    "eagle3": _own("eagle3"),
    "cascade": _own("cascade"),
    "medusa": _own("medusa"),
    "medusa_tree": _own("medusa_tree", **_EAGER),
    "prediction": _own("prediction", **_EAGER),
    "suffix, piecewise graphs": _own("suffix", **_PIECEWISE),
    "suffix, full graphs": _own("suffix", **_FULL),
    "draft_model, eager": _own("draft_model", **_EAGER),
}
