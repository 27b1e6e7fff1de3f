"""Workloads: the requests of the streams."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Annotated

import typer

from vllm_spec_tools.bench.prompts import PROMPTS, STRUCTURED
from vllm_spec_tools.bench.records import LoadJob, LoadRequest, Phase

EASY, HARD, MIXED, SWITCHING, EQUAL, JSON = "easy", "hard", "mixed", "switching", "equal", "json"
# The first of a process's passes of `equal`.
FIRST_PASS = "equal, first pass"
TITLES = {
    EASY: "predictable text (easy)",
    HARD: "unpredictable text (hard)",
    MIXED: "predictable and unpredictable text (mixed)",
    SWITCHING: "text that turns (switching)",
    EQUAL: "requests of equal length, all at once (equal)",
    FIRST_PASS: "the same, first pass of a process",
    JSON: "structured output (json)",
}
WORKLOADS = tuple(workload for workload in TITLES if workload != FIRST_PASS)
SWITCHES = (EASY, HARD, EASY)

# Short: speculation does not shorten prompts, and a small machine at 32 streams would spend half its time on them.
BEGINNINGS = tuple(text[:64] for text in PROMPTS)

_SHORTEST, _LONGEST = 0.5, 1.5
# Of `equal`, the same requests in each; the first is cold, and the last ones are warm.
PASSES, WARM_PASSES = 5, 3
_WARM_UP_TOKENS, LEAST_TOKENS = 16, 2
# Of `json`, maximum output tokens over the mean of others: its requests end where their schemas end.
_ROOM = 4
_LEAST_WARM_UP_TOKENS = 64


@dataclass(frozen=True)
class LoadSizes:
    """Sizes of a workload's requests and runs: options of `vllm-spec bench`."""

    request_tokens: Annotated[
        int,
        typer.Option(
            min=2,
            max=1024,
            help="Mean output tokens per request; requests have 0.5 to 1.5 times as many, those of equal just as many.",
        ),
    ] = 64
    stream_tokens: Annotated[int, typer.Option(min=2, help="Minimum output tokens per stream of a run.")] = 64
    min_total_tokens: Annotated[
        int, typer.Option(min=2, help="Minimum output tokens of a run, all streams together.")
    ] = 192
    phase_tokens: Annotated[
        int, typer.Option(min=2, max=800, help="Output tokens per stream and phase of the workload switching.")
    ] = 400
    hard_temperature: Annotated[
        float,
        typer.Option(
            "--temperature", min=0.1, max=10.0, help="Temperature of unpredictable text; predictable text has 0."
        ),
    ] = 1.5


def load_job(
    workload: str, streams: int, number: int, prompts: tuple[str, ...], sizes: LoadSizes, seed: int, *, is_warm_up: bool
) -> LoadJob:
    """Builds the job that every arm runs in a round.

    `easy` is text at temperature 0: each token is the likeliest one, and a good drafter's guess too. `hard` is the same
    prompts at a high temperature: a drafter that names one token is right about once in ten times, whoever it is. (One
    that draws its drafts from its own distribution is not: the two distributions are flat, and alike.) `mixed` has the
    two in turn. `switching` is easy, hard and easy again, all streams at once, one request per stream and phase.
    `equal` is passes of the same requests at temperature 0, all sent at once, each of `request_tokens` tokens, without
    a warm-up. `json` is other prompts at temperature 0, each with a JSON schema, which ends its request.

    Args:
        prompts: beginnings of the texts of all workloads but `json`.
        number: of the round, from 0; each has other requests.
    """
    rng, first = random.Random(f"{seed} {number} {workload}"), number * streams
    if workload == SWITCHING:
        num_tokens = min(sizes.phase_tokens, 2 * _WARM_UP_TOKENS) if is_warm_up else sizes.phase_tokens

        def phase(index: int, kind: str) -> Phase:
            # Faster streams continue until the slowest one ends, so that no request ends before the phase.
            own = (_request(kind, prompts, first + index + n, 2 * num_tokens, sizes) for n in range(streams))
            return Phase(tuple(own), streams * num_tokens)

        return LoadJob(streams, tuple(phase(*one) for one in enumerate(SWITCHES)), seed + number)
    if workload == EQUAL:
        num_tokens = sizes.request_tokens
        same = tuple(_request(EQUAL, prompts, first + n, num_tokens, sizes) for n in range(streams))
        passes = 0 if is_warm_up else PASSES
        return LoadJob(streams, (Phase(same, streams * num_tokens, is_pass=True),) * passes, seed + number)
    num_tokens = tokens_of_run(streams, sizes, is_warm_up=is_warm_up)
    kinds_in_turn = cycle((EASY, HARD) if workload == MIXED else (workload,))
    # Enough that none comes twice, unless requests end early.
    count = streams + 2 * num_tokens // sizes.request_tokens + 2
    requests = (
        _structured(first + i, sizes)
        if kind == JSON
        else _request(kind, prompts, first + i, varied(rng, sizes.request_tokens), sizes)
        for i, kind in enumerate(islice(kinds_in_turn, count))
    )
    return LoadJob(streams, (Phase(tuple(requests), num_tokens),), seed + number)


def varied(rng: random.Random, num_tokens: int) -> int:
    """Draws a length of 0.5 to 1.5 times `num_tokens`, so that requests do not all end in one step."""
    return max(round(num_tokens * rng.uniform(_SHORTEST, _LONGEST)), LEAST_TOKENS)


def longest(sizes: LoadSizes) -> int:
    """Returns the maximum output tokens of a request of the own workloads but `switching`."""
    return max(round(sizes.request_tokens * _LONGEST), LEAST_TOKENS)


def tokens_of_run(streams: int, sizes: LoadSizes, *, is_warm_up: bool) -> int:
    """Returns the output tokens after which a run ends, all streams together."""
    if is_warm_up:
        return max(streams * _WARM_UP_TOKENS, _LEAST_WARM_UP_TOKENS)
    return max(streams * sizes.stream_tokens, sizes.min_total_tokens)


def _request(kind: str, prompts: tuple[str, ...], index: int, num_tokens: int, sizes: LoadSizes) -> LoadRequest:
    prompt = _prompt(prompts, index)
    return LoadRequest(kind, prompt, sizes.hard_temperature if kind == HARD else 0.0, num_tokens)


def _structured(index: int, sizes: LoadSizes) -> LoadRequest:
    prompt, schema = _prompt([text for text, _ in STRUCTURED], index), STRUCTURED[index % len(STRUCTURED)][1]
    return LoadRequest(JSON, prompt, 0.0, _ROOM * sizes.request_tokens, may_end=True, schema=schema)


def _prompt(prompts: Sequence[str], index: int) -> str:
    """Returns a different prompt for each index: the prefix cache would have an earlier one."""
    turn, which = divmod(index, len(prompts))
    return f"# Part {turn + 1}\n{prompts[which]}" if turn else prompts[which]
