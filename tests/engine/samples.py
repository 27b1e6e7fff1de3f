"""The samples that the statistical tests look at, and the checks they share."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.engine import chi_square
from tests.engine.arms import Arms, Engine
from tests.engine.chi_square import Test
from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import CertifyRequest, Job, JobResult
from vllm_spec_tools.certify.target_probabilities import probabilities

NUM_POSITIONS = 3
# After the first token there is room for as many drafts as are looked at, and one more token.
_MAX_TOKENS = 5
# Outputs of one request: its prompt is then computed once.
_OUTPUTS = 25

Settings = Mapping[str, dict[str, Any]]
# Per (setting, prompt) the continuations.
Samples = dict[tuple[str, Tokens], list[Tokens]]


def by_prefix(continuations: Sequence[Sequence[int]], position: int) -> dict[Tokens, Counter[int]]:
    """Counts the tokens at `position`, by the tokens before it."""
    counts: dict[Tokens, Counter[int]] = {}
    for continuation in continuations:
        counts.setdefault(tuple(continuation[:position]), Counter())[continuation[position]] += 1
    return counts


@dataclass(frozen=True)
class Plan:
    """Prompts, settings and number of continuations to sample."""

    settings: Settings  # Sampling parameters, by a name to report.
    prompts: Sequence[Tokens]  # All are continued with all settings.
    size: int  # Continuations of each prompt in each setting, a multiple of 25.


def sample(arms: Arms, engine: Engine, plan: Plan, sabotage: str = "") -> tuple[Samples, JobResult]:
    """Continuations of all prompts in all settings, mixed in one job, and the job's result."""
    max_tokens = _MAX_TOKENS if engine.config else NUM_POSITIONS
    cases = [(name, prompt) for name in plan.settings for prompt in plan.prompts] * (plan.size // _OUTPUTS)
    fixed = {"n": _OUTPUTS, "max_tokens": max_tokens, "ignore_eos": True, "detokenize": False}
    # Computes the prompts once: the requests of the job then find them in the prefix cache.
    arms.run(engine, Job([CertifyRequest(prompt, {"max_tokens": 1}) for prompt in plan.prompts]))
    requests = [CertifyRequest(prompt, plan.settings[name] | fixed) for name, prompt in cases]
    result = arms.run(engine, Job(requests, sabotage=sabotage))
    samples: Samples = {}
    for case, outputs in zip(cases, result.outputs, strict=True):
        samples.setdefault(case, []).extend(tuple(o.token_ids[:NUM_POSITIONS]) for o in outputs)
    return samples, result


def exact_tests(reference: Reference, settings: Settings, samples: Samples) -> dict[tuple[str, Tokens, int], Test]:
    """Per (setting, prompt, position) the samples against exact probabilities."""
    tests = {}
    for (name, prompt), continuations in samples.items():
        for position in range(NUM_POSITIONS):
            counts = by_prefix(continuations, position)
            logits = reference.logits_after(prompt, list(counts))
            exact = probabilities(logits, prompt, list(counts), settings[name]).numpy()
            tests[name, prompt, position] = chi_square.against_probabilities(counts, exact)
    return tests


def tree_sizes(result: JobResult) -> dict[int, set[int]]:
    """By tokens of a draft with branches, how many of them were accepted; of an engine with random lengths."""
    found: dict[int, set[int]] = {}
    for key in result.notes["lengths"]:
        drafted, accepted = map(int, key.split())
        found.setdefault(drafted, set()).add(accepted)
    return found


def impossible(reference: Reference, settings: Settings, samples: Samples) -> list[tuple[str, Tokens, Tokens]]:
    """(setting, prompt, continuation) of the samples whose last token has probability 0, rounding aside."""
    found = []
    for (name, prompt), continuations in samples.items():
        for position in range(NUM_POSITIONS):
            counts = by_prefix(continuations, position)
            logits = reference.logits_after(prompt, list(counts))
            exact = probabilities(logits, prompt, list(counts), settings[name], slack=1e-3)
            for (prefix, seen), row in zip(counts.items(), exact, strict=True):
                found += [(name, prompt, (*prefix, token)) for token in seen if row[token] == 0]
    return found
