"""Cost of the draft-length policy: it runs as in a server, everything else is made up."""

import gc
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.config import PluginConfig, parse_config
from vllm_spec_plugin.draft_plan import DraftPlan, length_of, longest
from vllm_spec_plugin.policy.control import Drafting, DraftRequest, MeasuredStep, StepBatch
from vllm_spec_plugin.policy.create import create_control

PARTS = ("plan", "outcomes", "measured")
ACCEPTANCE = 0.7
# Of a proposer that is not the last one asked: how often it has a guess.
_HAS_GUESS = 0.5
# A target that drafting pays for with any number of requests: seconds of a step, and of a token in it.
_STEP, _TOKEN = 0.02, 5e-5
# Seconds per position of the longest draft, by method, and per draft token.
_POSITION, _DRAFT_TOKEN = {"ngram": 0.0, "draft_model": 2e-4}, 1e-6
_NOISE = 0.03
_CONTEXT = 512
_MAX_STEP_TOKENS = 8192
_PROBED = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_WARM_UP = 64

_NGRAM = {"method": "ngram"}
_DRAFT_MODEL = {"method": "draft_model", "model": "any"}
CASES = {
    "draft model": _DRAFT_MODEL,
    "n-gram and draft model": {"method": "cascade", "proposers": [_NGRAM, _DRAFT_MODEL]},
}


def config_of(case: str, num_tokens: int) -> PluginConfig:
    """The configuration of one of `CASES`.

    Args:
        case: its name.
        num_tokens: K.

    Raises:
        ConfigError: K is out of range.
    """
    return parse_config(
        {"proposer": CASES[case], "draft_length": {"policy": "optimal", "tokens": num_tokens}}, f"--tokens {num_tokens}"
    )


def measure(config: PluginConfig, num_requests: int, steps: int, rounds: int, seed: int) -> list[dict[str, float]]:
    """Runs the policy for rounds of steps, after a warm-up that also compiles.

    Args:
        config: of the policy and its proposers.
        num_requests: requests drafted for in each step.
        steps: of a round, at least 1.
        rounds: at least 1.
        seed: of the drafts' outcome.

    Returns:
        By round: CPU seconds per step of all requests to choose draft lengths ("plan"), to take in what became of
        drafts ("outcomes") and what the step took ("measured"), "total", and "draft_length", tokens per request.
    """
    server = _Server(config, num_requests, seed)
    for _ in range(_WARM_UP):
        server.step()
    # vLLM freezes its heap; here each collection would go through all that is imported.
    gc.collect()
    gc.disable()
    try:
        times = np.array([[server.step() for _ in range(steps)] for _ in range(rounds)]).mean(axis=1)
    finally:
        gc.enable()
    return [
        {**dict(zip(PARTS, parts, strict=True)), "total": sum(parts), "draft_length": length}
        for *parts, length in (times * [1e-9, 1e-9, 1e-9, 1]).tolist()
    ]


class _Outcome(NamedTuple):
    """Outcome of a request's drafts: the last arguments of `DraftLengthControl.verified`."""

    draft_plan: DraftPlan
    source: int | None
    drafted: int
    accepted: int


class _Server:
    """Simulated requests with one acceptance probability at every position, and a clock."""

    def __init__(self, config: PluginConfig, num_requests: int, seed: int) -> None:
        self._control = create_control(config, _MAX_STEP_TOKENS)
        self._most = config.draft_length.tokens
        self._methods = [proposer.method for proposer in config.proposers]
        self._rng = np.random.default_rng(seed)
        limits, uncomputed = (self._most,) * len(self._methods), (0,) * len(self._methods)
        self._requests = [DraftRequest(f"cmpl-{index:032x}-0", limits, uncomputed) for index in range(num_requests)]
        self._control.probed([(size, _STEP + _TOKEN * size) for size in _PROBED])

    def step(self) -> tuple[int, int, int, float]:
        """Nanoseconds of planning, of the outcomes and of what the step took, and planned draft tokens per request."""
        control, clock, num_requests = self._control, time.thread_time_ns, len(self._requests)
        batch = StepBatch(num_requests, num_requests, num_requests * _CONTEXT, num_requests * self._most)
        begin = clock()
        chosen = control.plan(self._requests, batch)
        plan = clock() - begin

        outcomes = self._outcomes(chosen)
        happened = [(request.request_id, outcome) for request, outcome in zip(self._requests, outcomes, strict=True)]
        begin = clock()
        for request_id, outcome in happened:
            control.verified(request_id, *outcome)
        told = clock() - begin

        step = self._measured(outcomes)
        begin = clock()
        control.measured(step)
        return plan, told, clock() - begin, sum(longest(draft_plan) for draft_plan in chosen) / num_requests

    def _outcomes(self, chosen: Sequence[DraftPlan]) -> list[_Outcome]:
        # Places before the first token that is rejected.
        right = (self._rng.geometric(1 - ACCEPTANCE, len(chosen)) - 1).tolist()
        guesses = self._rng.random((len(chosen), len(self._methods))).tolist()
        outcomes = []
        for draft_plan, accepted, luck in zip(chosen, right, guesses, strict=True):
            # The last one asked always has a guess.
            source, drafted = next(
                (own for own in draft_plan if own is draft_plan[-1] or luck[own[0]] < _HAS_GUESS), (None, 0)
            )
            outcomes.append(_Outcome(draft_plan, source, drafted, min(accepted, drafted)))
        return outcomes

    def _measured(self, outcomes: Sequence[_Outcome]) -> MeasuredStep:
        drafting = []
        for proposer, method in enumerate(self._methods):
            rows = sum(outcome.drafted for outcome in outcomes if outcome.source == proposer)
            longest = max(length_of(outcome.draft_plan, proposer) for outcome in outcomes)
            drafting.append(Drafting(longest, rows, 0, _POSITION[method] * longest + _DRAFT_TOKEN * rows))
        num_tokens = len(outcomes) + sum(outcome.drafted for outcome in outcomes)
        seconds = (_STEP + _TOKEN * num_tokens) * float(np.exp(self._rng.normal(0, _NOISE)))
        seconds += sum(part.seconds for part in drafting)
        return MeasuredStep(
            num_tokens, len(outcomes), len(outcomes) * _CONTEXT, seconds, tuple(drafting), num_tokens > len(outcomes)
        )
