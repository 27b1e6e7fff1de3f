"""Runs one of vLLM's drafters on the V2 runner: greedy, sampled, and with seeds."""

import dataclasses
from typing import Any

from tests.engine.arms import Arms, Engine
from tests.engine.chi_square import Test
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.v2.drafters import Target
from tests.engine.v2.exactness import context_test

GREEDY_TOKENS, SAMPLED_TOKENS = 32, 24
SETTINGS: dict[str, dict[str, Any]] = {
    "temperature 1": {"temperature": 1.0},
    "repetition penalty": {"temperature": 1.0, "repetition_penalty": 1.3},
    "temperature 0.7, penalties": {"temperature": 0.7, "presence_penalty": 0.5, "frequency_penalty": 0.3},
}
# For one drafter: vLLM applies them before it verifies, in the same way for all, and its kernel takes the interpreter a
# tenth of a second per position.
TRUNCATIONS: dict[str, dict[str, Any]] = {
    "top-k": {"temperature": 1.0, "top_k": 20},
    "top-p": {"temperature": 1.0, "top_p": 0.9},
}
MIN_P: dict[str, dict[str, Any]] = {"min-p": {"temperature": 1.0, "min_p": 0.05}}
# Of a drafter beyond `SETTINGS`. vLLM refuses min-p with speculation.
FURTHER = {"none": MIN_P, "draft_model": TRUNCATIONS}
SEEDED = {"temperature": 1.0}
_ANY_SEED = 1000


def run_greedy(arms: Arms, engine: Engine, target: Target) -> JobResult:
    """Runs the target's prompts at temperature 0; outputs equal those without speculation on the same runner.

    Raises:
        AssertionError: an output differs, other than where the target's two likeliest tokens tie.
    """
    job = greedy_job(target.prompts, GREEDY_TOKENS)
    result = arms.run(engine, job)
    plain = arms.run(dataclasses.replace(engine, config=""), job)
    assert_same_tokens(target.reference, target.prompts, result, plain)
    return result


def run_sampled(
    arms: Arms, engine: Engine, target: Target, settings: dict[str, dict[str, Any]], rounds: int = 1, sabotage: str = ""
) -> tuple[JobResult, dict[str, Test]]:
    """Samples the target's prompts in all settings, mixed in one job.

    Args:
        arms: run the engine.
        engine: of the target.
        target: what is asked.
        settings: sampling parameters by name.
        rounds: outputs of each prompt in each setting.
        sabotage: see `Job`.

    Returns:
        The job's result, and per setting the test against the exact distribution.
    """
    usual = {"max_tokens": SAMPLED_TOKENS, "ignore_eos": True, "detokenize": False}
    cases = [(name, prompt) for _ in range(rounds) for prompt in target.prompts for name in settings]
    result = arms.run(engine, Job([CertifyRequest(p, settings[name] | usual) for name, p in cases], sabotage=sabotage))
    tests = {}
    for name, params in settings.items():
        mine = [(p, output) for (n, p), output in zip(cases, result.tokens(), strict=True) if n == name]
        prompts, outputs = zip(*mine, strict=True)
        tests[name] = context_test(target.reference, prompts, outputs, params, target.guess)
    return result, tests


def run_seeded(arms: Arms, engine: Engine, target: Target) -> tuple[JobResult, Test]:
    """Samples the target's prompts with seeds, alone and among other requests: each output is the same both times.

    Raises:
        AssertionError: an output depends on other requests.
    """
    usual = {"max_tokens": SAMPLED_TOKENS, "ignore_eos": True}
    seeded = [CertifyRequest(p, SEEDED | usual | {"seed": _ANY_SEED + i}) for i, p in enumerate(target.prompts)]
    background = [
        CertifyRequest(p, {"temperature": i % 2, "max_tokens": 5 + 7 * i % 20, "ignore_eos": True})
        for i, p in enumerate(reversed(target.prompts))
    ]
    alone = arms.run(engine, Job(seeded))
    mixed = arms.run(
        engine, Job([each for pair in zip(background, seeded, strict=True) for each in pair], torch_seed=5)
    )
    assert mixed.tokens()[1::2] == alone.tokens(), "a seeded output depends on other requests"
    test = context_test(target.reference, target.prompts, alone.tokens(), SEEDED, target.guess)
    return alone, test
