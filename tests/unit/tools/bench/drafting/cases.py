"""Runs made by hand."""

from collections.abc import Sequence

from vllm_spec_plugin.tools.bench.arm_spec import NONE
from vllm_spec_plugin.tools.bench.drafting.comparison import Cell, Results, results_of
from vllm_spec_plugin.tools.bench.records import Answer, Step
from vllm_spec_plugin.tools.bench.rounds import Run

STOCK, PLUGIN = "vLLM's draft_model, K = 4", "fixed K = 4"
K = 4


def step(
    num_requests: int = 1,
    num_tokens: int | None = None,
    ms: float = 2.0,
    drafting_ms: float = 0.0,
    num_drafted: int = 0,
    in_prompt: bool = False,
) -> Step:
    """A step; its drafter takes nine tenths of the drafting."""
    tokens = num_requests if num_tokens is None else num_tokens
    return Step(num_requests, tokens, in_prompt, num_drafted, ms / 1e3, drafting_ms / 1e3, 0.9 * drafting_ms / 1e3)


def run(
    arm: str,
    steps: Sequence[Step],
    *,
    batch: int = 1,
    temperature: float = 0.0,
    number: int = 0,
    seconds: float | None = None,
    token_ids: list[list[int]] | None = None,
    counts: tuple[int, int, int] = (0, 0, 0),
    parts: dict[str, float] | None = None,
) -> Run[Cell, Answer]:
    """A run; drafts, drafted and accepted tokens are `counts`, and unless told otherwise no time is between steps."""
    outputs = [[1, 2, 3]] * batch if token_ids is None else token_ids
    total = sum(s.seconds for s in steps) if seconds is None else seconds
    answer = Answer(total, total, [[7]] * len(outputs), outputs, list(steps), *counts, parts or {})
    return Run(arm, (batch, temperature), number, answer)


def speculating(
    arm: str, drafting_ms: float, temperature: float, number: int, parts: dict[str, float]
) -> Run[Cell, Answer]:
    """A prompt, eight regular steps of 3 ms besides drafting that accept 2 of 4 drafts each, and 2 ms between steps."""
    regular = step(1, K + 1, 3 + drafting_ms, drafting_ms, K)
    steps = [step(1, 9, 5 + drafting_ms, drafting_ms, K, in_prompt=True), *[regular] * 8]
    seconds = sum(s.seconds for s in steps) + 2e-3
    tokens = [list(range(25))]
    return run(
        arm,
        steps,
        temperature=temperature,
        number=number,
        seconds=seconds,
        token_ids=tokens,
        counts=(8, 32, 16),
        parts=parts,
    )


def results(temperature: float = 0.0, rounds: int = 3, parts: dict[str, float] | None = None) -> Results:
    """Three arms at batch 1: a token takes 2 ms without speculation, a draft step 0.8 ms in stock, 0.4 ms in ours."""
    runs = []
    for number in range(rounds):
        plain = [step(1, 9, 5, in_prompt=True), *[step()] * 24]
        runs += [
            run(NONE, plain, temperature=temperature, number=number, token_ids=[list(range(25))]),
            speculating(STOCK, 3.2, temperature, number, {}),
            speculating(PLUGIN, 1.6, temperature, number, {}),
        ]
        if parts:
            runs.append(speculating(PLUGIN, 1.6, temperature, rounds + number, parts))
    return results_of(runs, {NONE: 0, STOCK: K, PLUGIN: K}, [(1, temperature)], rounds)
