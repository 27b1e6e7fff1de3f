"""Measurements made by hand: a target, candidates whose acceptance and costs are known, and a plan over them."""

from collections.abc import Callable, Mapping, Sequence

from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_tools.bench.records import EngineStep, LoadAnswer, LoadOutput, PhaseAnswer, Progress
from vllm_spec_tools.planner.candidates import (
    DRAFT_MODEL,
    NONE,
    SUFFIX,
    Engine,
    MeasuredCandidate,
    Sample,
    Setting,
    chain_engines,
)
from vllm_spec_tools.planner.forecast import forecasts
from vllm_spec_tools.planner.measuring import RECOMMENDED, Verified, joining, settings, summarise
from vllm_spec_tools.planner.models import TARGET, Memory
from vllm_spec_tools.planner.recommending import choose, verdict
from vllm_spec_tools.planner.results import Results
from vllm_spec_tools.planner.traffic import Workload
from vllm_spec_tools.report.provenance import provenance

LEVELS = (1, 8)
WORKLOADS = (Workload("edit", 0.5, 0.0, 65, ("a", "b")), Workload("chat", 0.5, 0.0, 65, ("c",)))
# Steps of a job.
STEPS = 100
ALPHA = {SUFFIX: 0.5, DRAFT_MODEL: 0.8, CASCADE: 0.8}
# Seconds of drafting: fixed, and per token.
DRAFTING = {SUFFIX: (1e-5, 0.0), DRAFT_MODEL: (1e-4, 5e-4), CASCADE: (1e-4, 4e-4)}
# By how much a step is longer for a prompt in it.
PROMPT = 0.02


def cheap(num_tokens: int) -> float:
    """A target that waits for its memory: 10 ms, and a little per token."""
    return 0.010 + 1e-5 * num_tokens


def expensive(num_tokens: int) -> float:
    """A target that is busy computing: every token takes its time."""
    return 0.0005 + 0.005 * num_tokens


def answer(
    level: int,
    tokens: int,
    rates: Sequence[float],
    seconds: float,
    drafting: float,
    *,
    draft_share: float = 1.0,
) -> LoadAnswer:
    """A job of regular steps behind its prompts, in which each place is accepted as often as `rates` says.

    Args:
        level: its requests.
        tokens: drafted in each step.
        rates: of each place, given those before it.
        seconds: of a step without drafting.
        drafting: of it.
        draft_share: of the request-steps, those with a draft.
    """
    request_steps = level * STEPS
    drafts = round(request_steps * draft_share) if tokens else 0
    accepted, left = [], float(drafts)
    for rate in rates[:tokens]:
        left *= rate
        accepted.append(round(left))
    step = EngineStep(level, level * (1 + tokens), False, seconds + drafting, drafting, drafting)
    prompts = EngineStep(level, 9 * level, True, step.seconds + PROMPT, drafting, drafting)
    outputs = [LoadOutput([7] * (1 + STEPS), True) for _ in range(level)]
    outputs[0].token_ids.extend([7] * sum(accepted))
    total = prompts.seconds + STEPS * step.seconds
    steps = [prompts, *[step] * STEPS]
    counts = (drafts, drafts * tokens, sum(accepted))
    progress = Progress([total], [level * (1 + STEPS) + sum(accepted)], request_steps + level, outputs=outputs)
    return LoadAnswer(total, [PhaseAnswer(progress, *counts, accepted)], steps)


def measured(
    engine: Engine | None = None,
    verify: Callable[[int], float] = cheap,
    alpha: Mapping[str, float] = ALPHA,
    workloads: Sequence[Workload] = WORKLOADS,
    levels: Sequence[int] = LEVELS,
) -> MeasuredCandidate:
    """Builds an engine's measurements, by default of suffixes and a draft model of up to 4 tokens.

    Args:
        engine: which.
        verify: seconds of a target step by its tokens, without speculation too.
        alpha: acceptance rate by candidate, the same everywhere.
        workloads: of the traffic.
        levels: requests at once.
    """
    engine = engine or chain_engines("/models/draft", None, 4)[0]

    def sample(setting: Setting, workload: str, level: int) -> Sample:
        seconds = verify(level * (1 + setting.tokens))
        if setting.candidate == NONE:
            return Sample(setting, workload, level, answer(level, 0, (), seconds, 0.0), 0.1)
        fixed, token = DRAFTING.get(setting.candidate, (1e-4, 0.0))
        rates = [alpha[setting.candidate]] * setting.tokens
        drafting = fixed + token * setting.tokens
        return Sample(setting, workload, level, answer(level, setting.tokens, rates, seconds, drafting), 0.1)

    samples = [
        sample(setting, workload.name, level)
        for level in levels
        for workload in workloads
        for setting in settings(engine)
    ]
    joined = {
        (setting, level): (sample(setting, "", level).answer.steps[0].seconds,) * 4
        for level in levels
        if level > 1
        for setting in joining(engine)
    }
    return MeasuredCandidate(engine, tuple(samples), joined)


def verified(*ratios: float, rate: float = 100.0) -> Verified:
    """A level at which the recommended file has so many times the tokens per second of none, per round."""

    def run(rate: float, number: int, counts: tuple[int, int, int]) -> LoadAnswer:
        speed = rate * (1 + 0.02 * number)
        progress = Progress([1.0], [round(speed)], 40, [0.03], [1 / rate], [30 / rate])
        return LoadAnswer(1.0, [PhaseAnswer(progress, *counts)])

    return summarise(
        {
            NONE: [run(rate, number, (0, 0, 0)) for number, _ in enumerate(ratios)],
            RECOMMENDED: [run(rate * ratio, number, (40, 120, 60)) for number, ratio in enumerate(ratios)],
        }
    )


def plan(verify: Callable[[int], float] = cheap, ratios: Mapping[int, float] | None = None) -> Results:
    """A whole plan; by default verified at 1.9 and 1.5 times none."""
    part = measured(verify=verify)
    found = tuple(forecasts(part, WORKLOADS, LEVELS))
    choice = choose(found)
    ratios = {1: 1.9, 8: 1.5} if ratios is None else ratios
    runs = {level: verified(ratio, ratio, ratio) for level, ratio in ratios.items()}
    memory = {
        TARGET: Memory(4_000_000, 1024),
        SUFFIX: Memory(0, 0),
        DRAFT_MODEL: Memory(1_000_000, 256),
        CASCADE: Memory(None, 256),
    }
    return Results(
        WORKLOADS,
        LEVELS,
        (part,),
        found,
        choice,
        runs,
        verdict(choice, runs),
        memory,
        {NONE: {"device": "cpu"}},
        (0.1, 0.2),
        ("Something was not measured.",),
    )


PROVENANCE = provenance(["plan"], 0, ("a", "b", "c"), {"target": "/models/big"}) | {"model": "/models/big"}
