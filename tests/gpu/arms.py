"""Engines that are compared on a GPU: own proposers and vLLM's, both runners, scheduling modes, graph modes."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.engine.arms import CASCADE
from tests.fixed_length import fixed_length, native
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.certify.subject import max_accepted_of

K = 4
V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
_EAGER = {"enforce_eager": True}
_FULL = {"compilation_config": {"cudagraph_mode": "FULL_AND_PIECEWISE"}}
_PIECEWISE = {"compilation_config": {"cudagraph_mode": "PIECEWISE"}}
_SYNCHRONOUS = {"async_scheduling": False}
# Prompts are computed in chunks, and requests are preempted.
_FEW_BLOCKS = {"max_num_seqs": 24, "max_num_batched_tokens": 128, "block_size": 32, "num_gpu_blocks_override": 44}
_BFLOAT16 = {"dtype": "bfloat16"}
_SLEEP = {"enable_sleep_mode": True}


@dataclass(frozen=True)
class Setup:
    """An engine.

    Attributes:
        config: path of a plugin.yaml; empty is no speculation.
        arguments: of `vllm.LLM`.
        environment: of its process.
        check: whether it checks its KV blocks in each step, see `tests/engine/integrity.py`.
    """

    config: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    check: bool = False

    @property
    def is_native(self) -> bool:
        """Whether vLLM verifies."""
        return bool(self.config) and (load_config(self.config).is_native or self.environment == V2)

    @property
    def uses_predictions(self) -> bool:
        """Whether it drafts from predicted outputs."""
        return any(proposer.uses_predictions for proposer in load_config(self.config).proposers)

    @property
    def max_accepted(self) -> int:
        """The accepted length at which a step has accepted its whole draft."""
        return max_accepted_of(load_config(self.config))


def _native(method: str, arguments: dict[str, Any] | None = None, environment: dict[str, str] | None = None) -> Setup:
    weights = "draft" if method == "draft_model" else method
    config = native(json.dumps({"method": method, "model": str(model_path(weights))}), K)
    return Setup(config, arguments or {}, environment or {})


def _own(name: str, arguments: dict[str, Any] | None = None, *, check: bool = False) -> Setup:
    return Setup(fixed_length(name, K), arguments or {}, V1, check)


# In the order of their worth.
ARMS = {
    "none, V1": Setup("", _EAGER, V1),
    "none, V2": Setup("", _EAGER),
    "native draft_model": _native("draft_model"),
    "native eagle3": _native("eagle3"),
    "suffix": _own("suffix"),
    "draft_model": _own("draft_model"),
    "native draft_model, V1": _native("draft_model", _EAGER, V1),
    "native draft_model, synchronous": _native("draft_model", _EAGER | _SYNCHRONOUS),
    "native draft_model, eager": _native("draft_model", _EAGER),
    "suffix, V2": Setup(fixed_length("suffix", K), _EAGER, V2),
    "prediction, V2": Setup(fixed_length("prediction", K), _EAGER, V2),
    "draft_model, V2": Setup(fixed_length("draft_model", K), {}, V2),
    "medusa, V2": Setup(fixed_length("medusa", 3), {}, V2),
    "eagle3": _own("eagle3"),
    "cascade": _own("cascade"),
    "medusa": _own("medusa"),
    "medusa_tree": _own("medusa_tree", _EAGER, check=True),
    "prediction": _own("prediction", _EAGER),
    "suffix, piecewise graphs": _own("suffix", _PIECEWISE),
    "suffix, full graphs": _own("suffix", _FULL),
    "draft_model, eager": _own("draft_model", _EAGER, check=True),
}
# Of the same engines with few KV blocks, in which requests are preempted.
FEW_BLOCKS = {
    "cascade, few blocks": Setup(CASCADE, _EAGER | _FEW_BLOCKS, V1, check=True),
    "native draft_model, few blocks": _native("draft_model", _EAGER | _FEW_BLOCKS),
}
# The first is compared with.
BFLOAT16 = {
    "none, bfloat16": Setup("", _BFLOAT16),
    "native draft_model, bfloat16": _native("draft_model", _BFLOAT16),
    "native eagle3, bfloat16": _native("eagle3", _BFLOAT16),
    "draft_model, bfloat16": _own("draft_model", _BFLOAT16),
}
ASLEEP = {
    "native draft_model, sleep": _native("draft_model", _EAGER | _SLEEP),
    "draft_model, sleep": _own("draft_model", _EAGER | _SLEEP),
    "eagle3, sleep": _own("eagle3", _EAGER | _SLEEP),
}
ALL = ARMS | FEW_BLOCKS | BFLOAT16 | ASLEEP
