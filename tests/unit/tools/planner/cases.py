"""Engines whose steps take as long, and accept as much, as told; and a whole recommendation over them."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import (
    EngineStep,
    LoadAnswer,
    LoadJob,
    LoadOutput,
    LoadRequest,
    PhaseAnswer,
    Progress,
)
from vllm_spec_tools.planner.candidates import DRAFT_MODEL, SUFFIX, candidate_engines
from vllm_spec_tools.planner.planning import Plan, Recommender
from vllm_spec_tools.planner.recommending import RECOMMENDED
from vllm_spec_tools.report.provenance import provenance

LEVELS = (1, 8)
REQUESTS = [LoadRequest("edit", text, 0.0, 65) for text in "ab"] + [LoadRequest("chat", text, 0.0, 65) for text in "cd"]
# Steps of a job.
STEPS = 100
ALPHA = {SUFFIX: 0.5, DRAFT_MODEL: 0.8, CASCADE: 0.8}
# Seconds of drafting: fixed, and per token.
DRAFTING = {SUFFIX: (1e-5, 0.0), DRAFT_MODEL: (1e-4, 5e-4), CASCADE: (1e-4, 4e-4)}
# By how much a prompt makes a step longer.
PROMPT = 0.02
ORIGIN = provenance(["bench", "--recommend"], 0, "abcd", {"target": "/models/big"})


def cheap(num_tokens: int) -> float:
    """A target that waits for its memory: 10 ms, and a little per token."""
    return 0.010 + 1e-5 * num_tokens


def expensive(num_tokens: int) -> float:
    """A target that is busy computing: every token takes its time."""
    return 0.0005 + 0.005 * num_tokens


def answer(
    level: int, tokens: int, rates: Sequence[float], seconds: float, drafting: float, *, draft_share: float = 1.0
) -> LoadAnswer:
    """A job of regular steps behind its prompts.

    Args:
        rates: acceptance of each position, given those before it.
        seconds: of a step without drafting.
        draft_share: of the request-steps, those with a draft.
    """
    request_steps = level * STEPS
    drafts = round(request_steps * draft_share) if tokens else 0
    accepted, left = [], float(drafts)
    for rate in rates[:tokens]:
        left *= rate
        accepted.append(round(left))
    step = EngineStep(level, level * (1 + tokens), False, seconds + drafting, drafting, drafting)
    prompts = EngineStep(level, 9 * level, True, step.seconds + PROMPT * level, drafting, drafting)
    outputs = [LoadOutput([7] * (1 + STEPS), True) for _ in range(level)]
    outputs[0].token_ids.extend([7] * sum(accepted))
    total = prompts.seconds + STEPS * step.seconds
    counts = (drafts, drafts * tokens, sum(accepted))
    progress = Progress([total], [level * (1 + STEPS) + sum(accepted)], request_steps + level, outputs=outputs)
    return LoadAnswer(total, [PhaseAnswer(progress, *counts, accepted)], [prompts, *[step] * STEPS])


class ModelledEngines:
    """Engines without processes; they note their jobs by arm, and which ended.

    Attributes:
        ratios: tokens per second of the recommended arm over none, by number of streams.
    """

    def __init__(
        self,
        verify: Callable[[int], float] = cheap,
        alpha: Mapping[str, float] = ALPHA,
        ratios: Mapping[int, float] | None = None,
    ) -> None:
        self.verify, self.alpha, self.ratios = verify, alpha, ratios or {1: 1.9, 8: 1.5}
        self.facts: dict[str, dict[str, Any]] = defaultdict(lambda: {"dtype": "float32", "kv_bytes_per_token": 1024})
        self.jobs: dict[str, list[LoadJob]] = defaultdict(list)
        self.closed: list[str] = []
        self.added: dict[str, Any] = {}

    def add(self, plans: Mapping[str, Any]) -> None:
        self.added |= plans

    def of(self, arm: str, number: int | None = None) -> Any:
        return SimpleNamespace(load=partial(self.load, arm))

    def close(self, arm: str) -> None:
        self.closed.append(arm)

    def load(self, arm: str, job: LoadJob) -> LoadAnswer:
        self.jobs[arm].append(job)
        tokens = job.spec_tokens or 0
        if job.record_steps:
            name = arm.partition(", K")[0]
            fixed, token = DRAFTING.get(name, (1e-4, 0.0))
            seconds, drafting = self.verify(job.streams * (1 + tokens)), fixed + token * tokens
            rates = [self.alpha.get(name, 0.0)] * tokens
            return answer(job.streams, tokens, rates, seconds, drafting if tokens else 0.0)
        speed = 100.0 * (self.ratios[job.streams] if arm == RECOMMENDED else 1.0)
        progress = Progress([1.0], [round(speed)], 40, [0.03], [1 / speed], [30 / speed])
        counts = (40, 120, 60) if arm == RECOMMENDED else (0, 0, 0)
        return LoadAnswer(1.0, [PhaseAnswer(progress, *counts)])


def quiet() -> NoiseGate:
    """Never waits."""
    return NoiseGate(0.0, busy=lambda: None, sleep=lambda seconds: None)


def recommender(folder: Path, *, one_at_a_time: bool = False) -> Recommender:
    """Considers suffixes and a draft model of up to 4 tokens."""
    candidates = candidate_engines(4, draft="/models/draft")
    return Recommender(candidates, REQUESTS, LEVELS, 3, 7, folder, quiet, one_at_a_time)


def plan(engines: ModelledEngines | None = None, told: list[str] | None = None, *, one_at_a_time: bool = False) -> Plan:
    """A recommendation of `recommender`; by default 1.9 and 1.5 times none."""
    found: Any = engines or ModelledEngines()
    with TemporaryDirectory() as name:
        on_run = list[str]().append if told is None else told.append
        return recommender(Path(name), one_at_a_time=one_at_a_time).run(found, on_run, ORIGIN)
