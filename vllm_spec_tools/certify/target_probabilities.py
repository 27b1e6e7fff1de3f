"""The target's own law: raw logits of the engine without speculation, after each prompt and prefix."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_tools.certify.jobs import CertifyRequest, Job, RunsJobs, Tokens

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


class TargetProbabilities:
    """Probabilities of the next token, by prompt, prefix and sampling parameters.

    Top-k, top-p and min-p keep or drop whole tokens. Where that depends on rounding the row is left out.
    """

    def __init__(self, rows: Mapping[tuple[Tokens, Tokens], npt.NDArray[np.float32]], rounding: float) -> None:
        """Takes over the logits."""
        self._rows, self._rounding = rows, rounding

    def __contains__(self, text: tuple[Tokens, Tokens]) -> bool:
        return text in self._rows

    def probabilities(
        self, prompt: Tokens, prefixes: Iterable[Tokens], params: dict[str, Any]
    ) -> list[npt.NDArray[np.float64] | None]:
        """Per prefix [vocab_size], or None where it is not known or depends on rounding."""
        prefixes = list(prefixes)
        known = [prefix for prefix in prefixes if (prompt, prefix) in self._rows]
        if not known:
            return [None] * len(prefixes)
        logits = torch.from_numpy(np.stack([self._rows[prompt, prefix] for prefix in known]))
        logits = adjusted(logits, prompt, known, params)
        exact = truncated(logits, params)
        sound = self._is_sound(exact, logits, params).tolist()
        found = {prefix: row.numpy() for prefix, row, is_sound in zip(known, exact, sound, strict=True) if is_sound}
        return [found.get(prefix) for prefix in prefixes]

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


def read_law(
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
