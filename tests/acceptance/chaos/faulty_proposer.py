"""Makes the proposers of a served engine fail at random.

A plugin for vLLM, which loads it in each of its processes, by the entry point in `vllm_plugin/` (`faulty_environment`
puts that folder on the path).
"""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vllm_spec_plugin.metrics import counters
from vllm_spec_plugin.proposers.base import Draft, Proposer, RequestView
from vllm_spec_plugin.verification.draft_probs import SparseProbs

_RATE, _SEED = "LOADTEST_FAULT_RATE", "LOADTEST_FAULT_SEED"
_ROOT = Path(__file__).parents[3]
_ENTRY_POINT = Path(__file__).parent / "vllm_plugin"

Fault = Callable[[Sequence[RequestView], list[Draft]], Any]


def _raise(requests: Sequence[RequestView], drafts: list[Draft]) -> Any:
    raise RuntimeError("on purpose")


def _each(make: Callable[[int], Draft]) -> Fault:
    """A fault with the same draft for every request of that many draft tokens."""
    return lambda requests, drafts: [make(request.num_draft_tokens) for request in requests]


def _nan_probs(count: int) -> Draft:
    ids, probs = torch.ones((count, 1), dtype=torch.int64), torch.full((count, 1), torch.nan)
    return Draft([1] * count, SparseProbs(ids, probs))


# What becomes of a proposer's requests and drafts, by name.
FAULTS: dict[str, Fault] = {
    "raise": _raise,
    "out_of_vocabulary": _each(lambda count: Draft([2_000_000] * count)),
    "negative_token": _each(lambda count: Draft([-1] * count)),
    "too_many_tokens": _each(lambda count: Draft([1] * (count + 3))),
    "float_tokens": _each(lambda count: Draft(np.ones(count))),  # type: ignore[arg-type]
    "nan_probs": _each(_nan_probs),
    "too_few_drafts": lambda requests, drafts: drafts[:-1],
    "no_list": lambda requests, drafts: None,
}
# As what they are counted.
REASONS = {
    "raise": counters.RAISED,
    "out_of_vocabulary": counters.OUT_OF_VOCABULARY,
    "negative_token": counters.OUT_OF_VOCABULARY,
    "too_many_tokens": counters.TOO_MANY_TOKENS,
    "float_tokens": counters.WRONG_TYPE,
    "nan_probs": counters.BAD_PROBS,
    "too_few_drafts": counters.WRONG_COUNT,
    "no_list": counters.RAISED,
}


class RandomlyFaultyProposer:
    """Returns a sound proposer's drafts, or at random what a fault makes of them."""

    def __init__(self, sound: Proposer, rate: float, rng: random.Random) -> None:
        """Wraps a proposer; each step fails with probability `rate`."""
        self._sound, self._rate, self._rng = sound, rate, rng
        self.num_siblings: int = getattr(sound, "num_siblings", 1)

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """One draft per request, or the result of a fault."""
        drafts = self._sound.propose(requests)
        fault = drawn_fault(self._rate, self._rng)
        if fault is None:
            return drafts
        faulty: list[Draft] = FAULTS[fault](requests, drafts)
        return faulty

    def forget(self, request_id: str) -> None:
        """Forwarded."""
        self._sound.forget(request_id)

    def finish(self, request_id: str) -> None:
        """Forwarded, if the proposer learns from finished responses."""
        getattr(self._sound, "finish", self._sound.forget)(request_id)


def drawn_fault(rate: float, rng: random.Random) -> str | None:
    """The name of a fault, each equally likely, or None."""
    return rng.choice(list(FAULTS)) if rng.random() < rate else None


def faulty_environment(rate: float, seed: int) -> dict[str, str]:
    """Environment variables with which a server's proposers fail, with probability `rate` per step."""
    path = [str(_ENTRY_POINT), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), _RATE: str(rate), _SEED: str(seed)}


def register(environment: Mapping[str, str] = os.environ) -> None:
    """Makes every proposer faulty; vLLM calls it in each process before one is created."""
    from vllm_spec_plugin.v1.proposers import create as made

    create, rate = made.create_proposer, float(environment[_RATE])

    def create_faulty(config: Any, *args: Any) -> Proposer:
        # The proposers of a cascade fail in different steps.
        rng = random.Random(f"{environment[_SEED]} {config.method}")
        return RandomlyFaultyProposer(create(config, *args), rate, rng)

    made.create_proposer = create_faulty  # type: ignore[assignment]
