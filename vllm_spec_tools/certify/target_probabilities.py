"""The target's own distribution: raw logits of the engine without speculation, after each prompt and prefix."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_tools.engines.jobs import CertifyRequest, Job, RunsJobs, Tokens

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Parameters that drop tokens.
TRUNCATIONS = ("min_p", "top_k", "top_p")


def probabilities(
    logits: torch.Tensor, prompt: Tokens, outputs: Sequence[Tokens], params: dict[str, Any], slack: float = 0.0
) -> torch.Tensor:
    """[len(outputs), vocab_size] float64: distributions of the next token, in the order of vLLM's sampler.

    Args:
        logits: [len(outputs), vocab_size], the target's after prompt and output.
    """
    return truncated(adjusted(logits, prompt, outputs, params), params, slack)


def adjusted(logits: torch.Tensor, prompt: Tokens, outputs: Sequence[Tokens], params: dict[str, Any]) -> torch.Tensor:
    """[len(outputs), vocab_size] float64: logits after logit bias, penalties and temperature; see `probabilities`."""
    logits = logits.double().clone()
    for token, bias in params.get("logit_bias", {}).items():
        logits[:, token] += bias
    repetition = params.get("repetition_penalty", 1.0)
    frequency, presence = params.get("frequency_penalty", 0.0), params.get("presence_penalty", 0.0)
    if (repetition, frequency, presence) != (1.0, 0.0, 0.0):
        counts = torch.zeros_like(logits)
        for row, output in enumerate(outputs):
            for token in output:
                counts[row, token] += 1
        seen = counts > 0
        seen[:, list(prompt)] = True
        penalised = torch.where(logits > 0, logits / repetition, logits * repetition)
        logits = torch.where(seen, penalised, logits)
        logits -= frequency * counts
        logits -= presence * (counts > 0)
    temperature: float = params.get("temperature", 1.0)
    return logits / temperature


def truncated(logits: torch.Tensor, params: dict[str, Any], slack: float = 0.0) -> torch.Tensor:
    """[num_rows, vocab_size] float64: distributions after min-p, top-k and top-p.

    Args:
        logits: [num_rows, vocab_size] float64, from `adjusted`.
        slack: keeps what is that close to being kept; a negative one drops what is that close to being dropped by min-p
            and top-p (the last of the top k always is).
    """
    if min_p := params.get("min_p"):
        probs = logits.softmax(-1)
        logits = logits.masked_fill(probs < min_p * probs.amax(-1, keepdim=True) * (1 - slack), -torch.inf)
    if top_k := params.get("top_k"):
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:] - max(slack, 0.0), -torch.inf)
    if top_p := params.get("top_p"):
        probs, order = logits.softmax(-1).sort(descending=True)
        likelier = probs.cumsum(-1) - probs
        excluded = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, order, likelier >= top_p + slack)
        logits = logits.masked_fill(excluded, -torch.inf)
    return logits.softmax(-1)


_MAX_ROWS = 2500
# Of all rows together: 40 million numbers are 160 MB.
_MAX_NUMBERS = 40_000_000
_MIN_SEEN = 4
_ROWS_PER_JOB = 256
# Rows whose probabilities are computed at a time.
_CHUNK = 64
# Tokens at least as likely are listed in a row.
LISTED = 1e-4


class Row(NamedTuple):
    """A distribution of the next token.

    Attributes:
        token_ids: [n] int64, ascending: tokens with a probability of `LISTED` at least; all possible ones where
            sampling parameters drop tokens.
        probs: [n] float64, their probabilities.
        rest: probability of all others together; 0 if they are impossible.
    """

    token_ids: Ints
    probs: Floats
    rest: float

    def prob(self, token_id: int) -> float | None:
        """Returns the probability of a listed token."""
        place = int(np.searchsorted(self.token_ids, token_id))
        is_listed = place < len(self.token_ids) and self.token_ids[place] == token_id
        return float(self.probs[place]) if is_listed else None


class TargetProbabilities:
    """Probabilities of the next token, by prompt, prefix and sampling parameters.

    Top-k, top-p and min-p keep or drop whole tokens. Where that depends on rounding the row is left out.
    """

    def __init__(self, logits: Mapping[tuple[Tokens, Tokens], npt.NDArray[np.float32]], rounding: float) -> None:
        """Takes over the logits."""
        self._logits, self._rounding = logits, rounding
        self._rows: dict[tuple[Tokens, str], dict[Tokens, Row]] = {}
        self._prefixes: dict[Tokens, list[Tokens]] = {}
        for prompt, prefix in logits:
            self._prefixes.setdefault(prompt, []).append(prefix)

    def rows(self, prompt: Tokens, params: dict[str, Any]) -> dict[Tokens, Row]:
        """Returns the distributions by prefix; those that are not known, or depend on rounding, are left out."""
        key = prompt, repr(sorted(params.items()))
        if key not in self._rows:
            prefixes, found = self._prefixes.get(prompt, []), dict[Tokens, Row]()
            for start in range(0, len(prefixes), _CHUNK):
                found |= self._compute(prompt, prefixes[start : start + _CHUNK], params)
            self._rows[key] = found
        return self._rows[key]

    def _compute(self, prompt: Tokens, prefixes: Sequence[Tokens], params: dict[str, Any]) -> dict[Tokens, Row]:
        logits = torch.from_numpy(np.stack([self._logits[prompt, prefix] for prefix in prefixes]))
        logits = adjusted(logits, prompt, prefixes, params)
        exact = truncated(logits, params)
        sound = self._is_sound(exact, logits, params).tolist()
        drops = any(params.get(name) for name in TRUNCATIONS)
        found = {}
        for prefix, row, is_sound in zip(prefixes, exact.numpy(), sound, strict=True):
            if is_sound:
                listed = row > 0 if drops else row >= LISTED
                found[prefix] = Row(np.flatnonzero(listed), row[listed], float(row[~listed].sum()))
        return found

    def _is_sound(self, exact: torch.Tensor, logits: torch.Tensor, params: dict[str, Any]) -> torch.Tensor:
        """[num_rows] bool: whether the same tokens are kept whichever way logits are rounded."""
        if not any(params.get(name) for name in TRUNCATIONS):
            return torch.ones(len(logits), dtype=torch.bool)
        kept = exact > 0
        bounds = [truncated(logits, params, slack) > 0 for slack in (self._rounding, -self._rounding)]
        # Of two tokens that are as likely, either may be the one that is kept.
        likelihood = logits.log_softmax(-1)
        min_kept = likelihood.where(kept, torch.inf).amin(-1)
        max_dropped = likelihood.where(~kept, -torch.inf).amax(-1)
        return (bounds[0] == bounds[1]).all(-1) & (min_kept - max_dropped >= self._rounding)


def read_probabilities(
    engine: RunsJobs, seen: Mapping[tuple[Tokens, Tokens], int], vocab_size: int, rounding: float
) -> TargetProbabilities:
    """Reads the logits after the texts that were seen most often, from an engine with `RAW_LOGITS`.

    Args:
        seen: how often each (prompt, prefix) was seen in samples of its own.
    """
    max_rows = max(1, min(_MAX_ROWS, _MAX_NUMBERS // vocab_size))
    texts = [text for text, count in Counter(seen).most_common(max_rows) if count >= _MIN_SEEN]
    params = {"temperature": 0.0, "max_tokens": 1, "logprobs": -1, "flat_logprobs": True, "detokenize": False}
    rows = {}
    for start in range(0, len(texts), _ROWS_PER_JOB):
        part = texts[start : start + _ROWS_PER_JOB]
        result = engine.run(Job([CertifyRequest(prompt + prefix, params) for prompt, prefix in part]))
        for text, [output] in zip(part, result.outputs, strict=True):
            assert output.rows is not None
            rows[text] = output.rows[0]
    return TargetProbabilities(rows, rounding)


# Arguments of an engine whose logits are to be read.
RAW_LOGITS = {"logprobs_mode": "raw_logits", "max_logprobs": -1}
