"""Tests whether draft tokens are output too often or too seldom: one bet for all drafted positions together.

What most faults of verification have in common is that a share s of the draft tokens is output although it should
have been rejected. At a drafted position the output then has the distribution (1 - s) p + s q, q being that of the
draft tokens. So the likelihood of the outputs under it, over that under p, is an e-value for any q that is known
before the outputs. Here q comes from the draft tokens after the same prefix in earlier rounds. With 1 - u q(x) over its
expectation, u instead of s is a share that is rejected although it should have been accepted.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vllm_spec_tools.certify.always_valid import mean
from vllm_spec_tools.certify.target_probabilities import Floats, Row
from vllm_spec_tools.engines.jobs import Tokens

Text = tuple[Tokens, Tokens]
SHARES = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
# Weight of p in the estimate of q, in draft tokens.
_PRIOR = 2.0


@dataclass(frozen=True)
class Cell:
    """Outputs of a round at drafted positions after one prefix.

    Attributes:
        text: prompt and prefix.
        count: how many there were.
        token_ids: [n], draft tokens there in earlier rounds.
        probs: [n], their probabilities.
        log_factors: [n + 1, 2 * shares], what an output of each of them adds to the evidence, last that of others.
    """

    text: Text
    count: int
    token_ids: list[int]
    probs: Floats
    log_factors: Floats


@dataclass
class DraftShare:
    """The test of one setting on one engine, round by round.

    Attributes:
        drafts: by prompt and prefix, draft tokens; only accepted ones where others are not known.
        cells: outputs that were tested.
    """

    drafts: dict[Text, Counter[int]] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    _log_e: Floats = field(default_factory=lambda: np.zeros(2 * len(SHARES)))

    @property
    def log_e(self) -> float:
        """The logarithm of the e-value of all rounds up to now."""
        return mean(self._log_e)

    def add(
        self,
        outputs: Mapping[Text, Counter[int]],
        drafts: Mapping[Text, Counter[int]],
        rows: Mapping[Tokens, Mapping[Tokens, Row]],
    ) -> None:
        """Tests a round, and learns from it.

        Args:
            outputs: by prompt and prefix, the tokens that were output at drafted positions.
            drafts: the draft tokens of these positions that are known.
            rows: the target's probabilities by prompt and prefix.
        """
        for (prompt, prefix), seen in outputs.items():
            row, before = rows[prompt].get(prefix), self.drafts.get((prompt, prefix))
            if row is not None and before and (cell := _cell((prompt, prefix), seen.total(), before, row)):
                self.cells.append(cell)
                counts = [seen[token_id] for token_id in cell.token_ids]
                self._log_e += np.array([*counts, cell.count - sum(counts)]) @ cell.log_factors
        for text, tokens in drafts.items():
            self.drafts.setdefault(text, Counter()).update(tokens)


def _cell(text: Text, count: int, before: Counter[int], row: Row) -> Cell | None:
    listed = [(token_id, number, prob) for token_id, number in before.items() if (prob := row.prob(token_id))]
    if not listed:
        return None
    token_ids, numbers, probs = zip(*listed, strict=True)
    # Last all other tokens.
    p, n = np.array([*probs, 1.0]), np.array([*numbers, 0.0])
    # Of the estimate of q over p.
    ratio = (n / p + _PRIOR) / (n.sum() + _PRIOR)
    q = n / (n.sum() + _PRIOR)
    more = np.log1p(SHARES * (ratio[:, None] - 1))
    fewer = np.log1p(-SHARES * q[:, None]) - np.log1p(-SHARES * (q * p).sum())
    return Cell(text, count, list(token_ids), p[:-1], np.concatenate([more, fewer], 1))
