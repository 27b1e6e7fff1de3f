"""Draws continuations from an engine, and tests them against the target's law and against another engine's.

Which tests are valid. Without drafts there are no accepted lengths, and given that a draft token was accepted its law
is not the target's: the joint law of accepted length and tokens can't be compared with a plain engine's as it
is. What holds exactly: (1) the tokens by themselves have the target's product law, at every position; (2) given all
that a step has done, its accepted length included, the *next* step's first token has the target's law; (3) given
that the maximum number of draft tokens was accepted, so has the bonus token after them. (2) and (3) test the joint
law, one per accepted length.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_spec_tools.certify import always_valid, chi_square
from vllm_spec_tools.certify.always_valid import TwoSamples
from vllm_spec_tools.certify.chi_square import Test
from vllm_spec_tools.certify.jobs import CertifyRequest, Job, JobOutput, RunsJobs, Tokens
from vllm_spec_tools.certify.settings import predicting, request_params
from vllm_spec_tools.certify.target_probabilities import TargetProbabilities

# The first token of an output, which has no draft, and draft tokens 1 to 4.
NUM_POSITIONS = 5
# Room for these, the bonus token, and the next step's first one.
MAX_TOKENS = 7
# Outputs of one request: its prompt is then computed once.
OUTPUTS = 25
# Accepted lengths from here on are one.
_LONG = 4

Stratum = tuple[str, int]
Counts = dict[Tokens, Counter[int]]


@dataclass
class TokenSamples:
    """The continuations of one setting on one engine.

    Attributes:
        counts: per prompt and stratum, per prefix, how often each token followed.
        two: per prompt, the test against the other engine's.
        log_e: maximum evidence against the target's law after any round.
        log_e_two: maximum evidence against the other engine's after any round.
    """

    counts: dict[Tokens, dict[Stratum, Counts]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(dict)))
    two: dict[Tokens, TwoSamples] = field(default_factory=lambda: defaultdict(TwoSamples))
    num_outputs: int = 0
    drafted: int = 0
    accepted: int = 0
    log_e: float = 0.0
    log_e_two: float = 0.0

    def add(self, prompt: Tokens, output: JobOutput, max_accepted: int) -> None:
        """Counts an output's tokens by position and by accepted length."""
        self.num_outputs += 1
        for stratum, prefix, token in strata(output, max_accepted):
            self.counts[prompt][stratum].setdefault(prefix, Counter())[token] += 1

    def pair(self, source: int, prompt: Tokens, output: JobOutput) -> None:
        """Gives an output to the two-sample test, as one of the plain engine's (0) or of this one's (1)."""
        tokens = tuple(output.token_ids[:NUM_POSITIONS])
        for position, token in enumerate(tokens):
            self.two[prompt].add(source, tokens[:position], token)

    def judge(self, law: TargetProbabilities, params: dict[str, Any]) -> None:
        """Updates the evidence with all samples up to now.

        Half of the bet is that all prompts and positions deviate a little, half that one of them does.
        """
        single, together = [], defaultdict[str, Any](float)
        for prompt, by_stratum in self.counts.items():
            rows = _Rows(law, prompt, params)
            for (kind, number), counts in by_stratum.items():
                e_values = always_valid.against_probabilities(*rows.known(counts))
                single.append(always_valid.mean(e_values))
                # The first token has no draft. Tokens by accepted length are others than each other, but not than those
                # by position: their e-values must not be multiplied.
                group = "position" if kind == "position" and number else "first" if kind == "position" else "accepted"
                together[group] += e_values
        log_e = always_valid.mean(
            [always_valid.mean(single), always_valid.mean(map(always_valid.mean, together.values()))]
        )
        self.log_e = max(self.log_e, log_e)
        self.log_e_two = max(self.log_e_two, always_valid.mean(test.log_e for test in self.two.values()))

    def chi_square(self, law: TargetProbabilities, params: dict[str, Any]) -> Test:
        """The chi-square test of all positions together: its p-value is asymptotic and decides nothing."""
        total = Test()
        for prompt, by_stratum in self.counts.items():
            rows = _Rows(law, prompt, params)
            for (kind, _), counts in by_stratum.items():
                if kind == "position":
                    total += chi_square.against_probabilities(*rows.known(counts))
        return total

    def num_pairs(self) -> int:
        """Pairs of tokens that the two-sample test compared."""
        return sum(test.num_pairs for test in self.two.values())

    def tested(self, law: TargetProbabilities) -> dict[Stratum, int]:
        """Counts the tokens that each stratum's test used: tokens after a prefix whose law is known."""
        found: Counter[Stratum] = Counter()
        for prompt, by_stratum in self.counts.items():
            for stratum, counts in by_stratum.items():
                found[stratum] += sum(seen.total() for prefix, seen in counts.items() if (prompt, prefix) in law)
        return dict(sorted(found.items()))

    def share_tested(self, law: TargetProbabilities) -> float:
        """Share of the counted tokens that `tested` counts."""
        counted = sum(c.total() for s in self.counts.values() for counts in s.values() for c in counts.values())
        return sum(self.tested(law).values()) / max(1, counted)


class _Rows:
    """A law's rows for one prompt and setting, each computed once."""

    def __init__(self, law: TargetProbabilities, prompt: Tokens, params: dict[str, Any]) -> None:
        self._law, self._prompt, self._params = law, prompt, params
        self._rows: dict[Tokens, Any] = {}

    def known(self, counts: Counts) -> tuple[Counts, Any]:
        """The counts after prefixes whose probabilities are known, and the probabilities."""
        new = [prefix for prefix in counts if prefix not in self._rows]
        self._rows.update(zip(new, self._law.probabilities(self._prompt, new, self._params), strict=True))
        known = {prefix: seen for prefix, seen in counts.items() if self._rows[prefix] is not None}
        return known, [self._rows[prefix] for prefix in known]


def strata(output: JobOutput, max_accepted: int) -> Iterator[tuple[Stratum, Tokens, int]]:
    """Yields what each token is tested as, its prefix and itself.

    Args:
        max_accepted: maximum number of draft tokens that a step can accept.
    """
    tokens = tuple(output.token_ids)
    for position, token in enumerate(tokens[:NUM_POSITIONS]):
        yield ("position", position), tokens[:position], token
    end = output.steps[0] if output.steps else 0
    accepted = None
    for size in output.steps[1:]:
        if accepted is not None:
            yield ("after accepted", min(accepted, _LONG)), tokens[:end], tokens[end]
        end, accepted = end + size, size - 1
        if accepted == max_accepted:
            yield ("bonus", max_accepted), tokens[: end - 1], tokens[end - 1]


def draw(
    engine: RunsJobs,
    prompts: Sequence[Tokens],
    params: dict[str, Any],
    size: int,
    number: int,
    predictions: Mapping[Tokens, Sequence[Sequence[int]]] | None = None,
) -> tuple[list[tuple[Tokens, JobOutput]], int, int]:
    """Draws continuations of each prompt.

    Args:
        size: continuations of each prompt, a multiple of 25.

    Returns:
        Each continuation with its prompt, draft tokens verified, and draft tokens accepted.
    """
    fixed = {"n": OUTPUTS, "max_tokens": MAX_TOKENS, "ignore_eos": True, "detokenize": False}
    cases = list(prompts) * (size // OUTPUTS)
    start = number * len(cases)
    requests = [
        CertifyRequest(prompt, request_params(params, start + i, OUTPUTS) | fixed) for i, prompt in enumerate(cases)
    ]
    if predictions:
        requests = predicting(requests, [predictions[prompt][start % len(predictions[prompt])] for prompt in cases])
    result = engine.run(Job(requests, torch_seed=number, by_step=True))
    outputs = [(prompt, o) for prompt, group in zip(cases, result.outputs, strict=True) for o in group]
    return outputs, result.accepted + result.rejected, result.accepted
