"""The ways to draft that the fuzz serves, each by a server of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.engine.arms import REPOSITORY
from tests.engine.v2 import runner_environment
from vllm_spec_plugin.models import model_path

NUM_DRAFT_TOKENS = 4
_PREDICTION: dict[str, Any] = {"method": "prediction"}
_SUFFIX: dict[str, Any] = {"method": "suffix", "shared": True, "shared_scope": "global"}
_MEDUSA: dict[str, Any] = {"method": "medusa", "model": str(model_path("medusa"))}
_DRAFT_MODEL: dict[str, Any] = {"method": "draft_model", "model": str(model_path("draft"))}


def _vllms(**config: Any) -> dict[str, Any]:
    return {"method": "vllm", "config": config}


@dataclass(frozen=True)
class Way:
    """A way to draft.

    Attributes:
        proposers: the sections of the proposers; several are a cascade.
        vllm_verifies: whether vLLM verifies, on either runner, else the plugin does.
        runner: vLLM's model runner.
    """

    proposers: tuple[dict[str, Any], ...]
    vllm_verifies: bool = True
    runner: str = "v1"
    methods: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", tuple(proposer["method"] for proposer in self.proposers))

    @property
    def config(self) -> dict[str, Any]:
        """The plugin.yaml."""
        several = {"method": "cascade", "proposers": list(self.proposers)}
        proposer = self.proposers[0] if len(self.proposers) == 1 else several
        return {"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": NUM_DRAFT_TOKENS}}

    @property
    def takes_predictions(self) -> bool:
        """Whether a proposer drafts from predictions."""
        return "prediction" in self.methods

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment of a server."""
        return runner_environment(self.runner, {"PYTHONPATH": str(REPOSITORY), **environment})


WAYS = {
    "own draft model": Way((_DRAFT_MODEL | {"draft_sampling": "probabilistic"},), vllm_verifies=False),
    "own cascade": Way((_PREDICTION, _SUFFIX), vllm_verifies=False),
    "own tree": Way((_MEDUSA | {"tree": [[0], [1], [0, 0], [0, 1]]},), vllm_verifies=False),
    "vLLM's draft model": Way((_vllms(**_DRAFT_MODEL),)),
    "vLLM's sampled draft model": Way((_vllms(**_DRAFT_MODEL, draft_sample_method="probabilistic"),)),
    "mixed": Way((_PREDICTION, _SUFFIX, _vllms(**_DRAFT_MODEL))),
    "text on V2": Way((_PREDICTION, _SUFFIX), runner="v2"),
    "heads on V2": Way((_MEDUSA,), runner="v2"),
    "text and heads on V2": Way((_PREDICTION, _SUFFIX, _MEDUSA), runner="v2"),
    "vLLM's draft model on V2": Way((_vllms(**_DRAFT_MODEL),), runner="v2"),
    "mixed on V2": Way((_PREDICTION, _SUFFIX, _vllms(**_DRAFT_MODEL)), runner="v2"),
}
