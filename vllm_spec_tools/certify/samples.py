"""Draws continuations from an engine, and tests them against the target's distribution and against another engine's.

Which tests are valid. A draft token that was accepted does not have the target's distribution, nor has one that takes
the place of a rejected one. What holds exactly: (1) the output at a drafted position has it, given all tokens before
and that the position had a draft; (2) so has the bonus token, given that a whole draft was accepted; (3) so has the
*next* step's first token, given the accepted length. All three are known before the token. (2) and (3) find states of
the engine, such as its KV cache, that go wrong with some accepted length.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vllm_spec_tools.certify import always_valid
from vllm_spec_tools.certify.always_valid import CONCENTRATIONS, TwoSamples
from vllm_spec_tools.certify.draft_share import DraftShare
from vllm_spec_tools.certify.power import smallest_fault
from vllm_spec_tools.certify.settings import predicting
from vllm_spec_tools.certify.target_probabilities import Row, TargetProbabilities
from vllm_spec_tools.engines.jobs import CertifyRequest, Job, JobOutput, RunsJobs, Tokens

# An output's tokens: its first one, which has no draft, then five draft positions and a bonus token at most.
MAX_TOKENS = 7
# Outputs of one request: its prompt is then computed once.
OUTPUTS = 25
# Accepted lengths from here on are one.
_LONG = 4

Stratum = tuple[str, int]
Counts = dict[Tokens, Counter[int]]
POSITION, DRAFT, AFTER, BONUS = "position", "draft", "after accepted", "bonus after"
# Strata are fixed in advance, as weights of e-values must not depend on what is seen. A group has every token once.
PLAIN_GROUPS: tuple[tuple[Stratum, ...], ...] = (tuple((POSITION, i) for i in range(MAX_TOKENS)),)
DRAFT_GROUPS: tuple[tuple[Stratum, ...], ...] = (
    tuple((DRAFT, i) for i in range(1, MAX_TOKENS)),
    (*((AFTER, i) for i in range(_LONG + 1)), *((BONUS, i) for i in range(1, _LONG + 1))),
)


class Token(NamedTuple):
    """An output token that is tested in a stratum.

    Attributes:
        draft_id: the draft token that was verified there, if it is known.
        is_accepted: whether it was accepted.
        number: number of the engine step.
    """

    stratum: Stratum
    prefix: Tokens
    token_id: int
    draft_id: int | None = None
    is_accepted: bool = False
    number: int = 0


@dataclass
class TokenSamples:
    """The continuations of one setting on one engine.

    Attributes:
        prompts: all that are sampled from, fixed in advance.
        has_drafts: whether the engine speculates; without that all tokens are tested, by their position.
        counts: by prompt and stratum, per prefix, how often each token followed.
        accepted: the same of accepted draft tokens.
        log_e: maximum evidence against the target's distribution after any round.
        log_e_two: maximum evidence against the other engine's samples after any round.
        drafted: draft tokens that were verified, tested or not.
    """

    prompts: Sequence[Tokens]
    has_drafts: bool = True
    counts: dict[tuple[Tokens, Stratum], Counts] = field(default_factory=lambda: defaultdict(dict))
    accepted: dict[tuple[Tokens, Stratum], Counts] = field(default_factory=lambda: defaultdict(dict))
    share: DraftShare = field(default_factory=DraftShare)
    two: TwoSamples = field(default_factory=TwoSamples)
    num_outputs: int = 0
    drafted: int = 0
    num_accepted: int = 0
    log_e: float = 0.0
    log_e_two: float = 0.0
    _round: list[tuple[Tokens, Token]] = field(default_factory=list)

    def add_plain(self, prompt: Tokens, output: JobOutput) -> None:
        """Gives an output of the engine without speculation to the two-sample test."""
        for position, token_id in enumerate(output.token_ids):
            if position:
                self.two.add(0, (prompt, tuple(output.token_ids[:position])), token_id)

    def add(self, prompt: Tokens, output: JobOutput, max_accepted: int = 0) -> None:
        """Adds an output to the round that `judge` ends."""
        self.num_outputs += 1
        tokens = strata(output, max_accepted) if self.has_drafts else positions(output)
        self._round += [(prompt, token) for token in tokens]

    def judge(self, probabilities: TargetProbabilities, params: dict[str, Any]) -> None:
        """Ends a round: updates the evidence with all samples up to now."""
        rows = {prompt: probabilities.rows(prompt, params) for prompt in self.prompts}
        self._end_round(rows)
        self.log_e = max(self.log_e, self.evidence(rows))
        self.log_e_two = max(self.log_e_two, self.two.log_e)

    def evidence(self, rows: Mapping[Tokens, Mapping[Tokens, Row]]) -> float:
        """Returns the logarithm of the e-value of all samples up to the last round's end.

        It is a mean of three bets: some prompt and stratum deviates, all of a group deviate a little, and draft tokens
        are output too often or too seldom.
        """
        groups = DRAFT_GROUPS if self.has_drafts else PLAIN_GROUPS
        single, together = [], []
        for group in groups:
            total = 0 * CONCENTRATIONS
            for prompt in self.prompts:
                for stratum in group:
                    e_values = always_valid.against_probabilities(self.counts[prompt, stratum], rows[prompt])
                    single.append(always_valid.mean(e_values))
                    total = total + e_values
            # Groups have tokens in common: their e-values must not be multiplied.
            together.append(always_valid.mean(total))
        bets = [always_valid.mean(single), always_valid.mean(together)]
        return always_valid.mean([*bets, self.share.log_e] if self.has_drafts else bets)

    def smallest_fault(self, threshold: float) -> float | None:
        """Returns the smallest fault that these samples show, see `power.smallest_fault`; None if none is.

        Args:
            threshold: p-value below which the outputs are not exact.
        """
        # The bet on draft tokens is one of three.
        return smallest_fault(self.share.cells, self.share.drafts, math.log(3 / threshold))

    def _end_round(self, rows: Mapping[Tokens, Mapping[Tokens, Row]]) -> None:
        outputs, drafts = defaultdict[Any, Counter[int]](Counter), defaultdict[Any, Counter[int]](Counter)
        # In the order of steps: each token is then tested given those before it.
        for prompt, token in sorted(self._round, key=lambda item: item[1].number):
            own, text = token.token_id, (prompt, token.prefix)
            self.counts[prompt, token.stratum].setdefault(token.prefix, Counter())[own] += 1
            if token.stratum[0] == DRAFT:
                self.two.add(1, text, own)
                outputs[text][own] += 1
                if token.draft_id is not None:
                    drafts[text][token.draft_id] += 1
                if token.is_accepted:
                    self.accepted[prompt, token.stratum].setdefault(token.prefix, Counter())[own] += 1
        self._round = []
        self.share.add(outputs, drafts, rows)

    def tested(self, probabilities: TargetProbabilities, params: dict[str, Any]) -> dict[str, int]:
        """Counts the tokens that each stratum's test used, those after a prefix whose distribution is known.

        Outputs at drafted positions are counted apart: "draft 1 accepted", and "draft 1 rejected" for the tokens in
        place of rejected ones.
        """
        found: Counter[str] = Counter()
        for (prompt, stratum), counts in self.counts.items():
            if not counts:
                continue
            rows, name = probabilities.rows(prompt, params), "{} {}".format(*stratum)
            total, accepted = (
                sum(seen.total() for prefix, seen in each.items() if prefix in rows)
                for each in (counts, self.accepted.get((prompt, stratum), {}))
            )
            if stratum[0] == DRAFT:
                found.update({f"{name} accepted": accepted, f"{name} rejected": total - accepted})
            else:
                found[name] += total
        return dict(sorted(found.items()))

    def num_tokens(self) -> int:
        """Returns the number of tokens in all strata, whether their distribution is known or not."""
        return sum(seen.total() for counts in self.counts.values() for seen in counts.values())


def positions(output: JobOutput) -> Iterator[Token]:
    """Yields all tokens of an output without drafts."""
    tokens = tuple(output.token_ids)
    for position, token_id in enumerate(tokens[:MAX_TOKENS]):
        yield Token((POSITION, position), tokens[:position], token_id)


def strata(output: JobOutput, max_accepted: int) -> Iterator[Token]:
    """Yields the tokens that drafts have to do with, once for each of their strata.

    Args:
        output: one by step.
        max_accepted: maximum number of draft tokens that a step can accept: the depth of trees.
    """
    tokens, start, before = tuple(output.token_ids), 0, 0
    for step in output.steps:
        depth = min(len(step.drafts), max_accepted)
        for offset in range(min(step.size, len(tokens) - start)):
            at = start + offset
            text = tokens[:at], tokens[at]
            if before and not offset:
                yield Token((AFTER, min(before - 1, _LONG)), *text, number=step.number)
            if offset < depth:
                is_accepted = offset < step.size - 1
                draft_id = step.drafts[offset] if step.drafts[offset] >= 0 else tokens[at] if is_accepted else None
                yield Token((DRAFT, min(offset + 1, MAX_TOKENS - 1)), *text, draft_id, is_accepted, step.number)
            elif depth:
                yield Token((BONUS, min(depth, _LONG)), *text, number=step.number)
        start, before = start + step.size, step.size if depth else 0


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
    # Each request has seeds of its own: vLLM gives its outputs seeds in a row.
    seeds = [{"seed": 1 + (start + i) * OUTPUTS} if "seed" in params else {} for i in range(len(cases))]
    requests = [CertifyRequest(prompt, params | seed | fixed) for prompt, seed in zip(cases, seeds, strict=True)]
    if predictions:
        requests = predicting(requests, [predictions[prompt][start % len(predictions[prompt])] for prompt in cases])
    result = engine.run(Job(requests, torch_seed=number, by_step=True))
    outputs = [(prompt, o) for prompt, group in zip(cases, result.outputs, strict=True) for o in group]
    return outputs, result.accepted + result.rejected, result.accepted
