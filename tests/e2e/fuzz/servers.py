"""The servers of the fuzz, one or more for each way to draft that runs on a CPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.engine import faults
from tests.engine.arms import REPOSITORY
from tests.engine.v2 import runner_environment
from vllm_spec_plugin.gate.scopes import OWN
from vllm_spec_plugin.gate.ways import Way
from vllm_spec_plugin.models import model_path

NUM_DRAFT_TOKENS = 4
_NGRAM: dict[str, Any] = {"method": "ngram", "min_order": 3}
_PREDICTION: dict[str, Any] = {"method": "prediction"}
_SUFFIX: dict[str, Any] = {"method": "suffix", "shared": True, "shared_scope": "global"}
_MEDUSA: dict[str, Any] = {"method": "medusa", "model": str(model_path("medusa"))}
_DRAFT_MODEL: dict[str, Any] = {"method": "draft_model", "model": str(model_path("draft"))}


def _vllms(**config: Any) -> dict[str, Any]:
    return {"method": "vllm", "config": config}


@dataclass(frozen=True)
class Served:
    """A server that drafts in some way.

    Attributes:
        way: the way.
        proposers: the sections of the proposers; several are a cascade.
        has_faults: whether the proposers fail in every fifth step.
    """

    way: Way
    proposers: tuple[dict[str, Any], ...]
    has_faults: bool = False

    @property
    def methods(self) -> tuple[str, ...]:
        """The proposers' methods."""
        return tuple(proposer["method"] for proposer in self.proposers)

    @property
    def runner(self) -> str:
        """vLLM's model runner."""
        return "v2" if self.way.endswith("V2") else "v1"

    @property
    def same_seeds(self) -> bool:
        """Whether a seeded request has the same outputs with drafts and without."""
        return self.way in OWN.ways or self.runner == "v2"

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
        own = faults.environment() if self.has_faults else {}
        return runner_environment(self.runner, {"PYTHONPATH": str(REPOSITORY), **environment, **own})


SERVERS = {
    "own draft model": Served(Way.OWN, (_DRAFT_MODEL | {"draft_sampling": "probabilistic"},)),
    "own cascade": Served(Way.TOKEN_ONLY_V1, (_PREDICTION, _SUFFIX, {"method": "grammar"})),
    "own tree": Served(Way.OWN, (_MEDUSA | {"tree": [[0], [1], [0, 0], [0, 1]]},)),
    "faulty cascade": Served(Way.OWN, (_NGRAM, _DRAFT_MODEL, _MEDUSA | {"draft_sampling": "probabilistic"}), True),
    "draft model of vLLM": Served(Way.VLLM_V1, (_vllms(**_DRAFT_MODEL),)),
    "sampled draft model of vLLM": Served(Way.VLLM_V1, (_vllms(**_DRAFT_MODEL, draft_sample_method="probabilistic"),)),
    "mixed": Served(Way.TOKEN_ONLY_VLLM_V1, (_PREDICTION, _SUFFIX, _vllms(**_DRAFT_MODEL))),
    "token-only on V2": Served(Way.TOKEN_ONLY, (_PREDICTION, _SUFFIX)),
    "heads on V2": Served(Way.HEADS, (_MEDUSA,)),
    "token-only and heads on V2": Served(Way.TOKEN_ONLY_HEADS, (_PREDICTION, _SUFFIX, _MEDUSA)),
    "draft model of vLLM on V2": Served(Way.VLLM_V2, (_vllms(**_DRAFT_MODEL),)),
    "mixed on V2": Served(Way.TOKEN_ONLY_VLLM_V2, (_PREDICTION, _SUFFIX, _vllms(**_DRAFT_MODEL))),
}
