"""The target's own law: raw logits of the engine without speculation, after each prompt and prefix."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_tools.certify.engines import RunsJobs
from vllm_spec_tools.certify.jobs import Job, Request, Tokens
from vllm_spec_tools.certify.probabilities import TRUNCATIONS, adjusted, truncated

_MAX_ROWS = 2500
# Of all rows together: 40 million numbers are 160 MB.
_MAX_NUMBERS = 40_000_000
_MIN_SEEN = 4
_ROWS_PER_JOB = 256


class Law:
    """Probabilities of the next token, by prompt, prefix and sampling parameters.

    Top-k, top-p and min-p keep or drop whole tokens. Where that depends on rounding the row is left out.
    """

    def __init__(self, rows: Mapping[tuple[Tokens, Tokens], npt.NDArray[np.float32]], rounding: float) -> None:
        """Takes over the logits.

        Args:
            rows: per (prompt, prefix) [vocab_size], raw logits.
        """
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


def read_law(engine: RunsJobs, seen: Mapping[tuple[Tokens, Tokens], int], vocab_size: int, rounding: float) -> Law:
    """Reads the logits after the texts that were seen most often, from an engine with `RAW_LOGITS`.

    Args:
        engine: without speculation.
        seen: how often each (prompt, prefix) was seen in samples of its own.
        rounding: see `Law`.
    """
    max_rows = max(1, min(_MAX_ROWS, _MAX_NUMBERS // vocab_size))
    texts = [text for text, count in Counter(seen).most_common(max_rows) if count >= _MIN_SEEN]
    params = {"temperature": 0.0, "max_tokens": 1, "logprobs": -1, "flat_logprobs": True, "detokenize": False}
    rows = {}
    for start in range(0, len(texts), _ROWS_PER_JOB):
        part = texts[start : start + _ROWS_PER_JOB]
        result = engine.run(Job([Request(prompt + prefix, params) for prompt, prefix in part]))
        for text, [output] in zip(part, result.outputs, strict=True):
            assert output.rows is not None
            rows[text] = output.rows[0]
    return Law(rows, rounding)


# Arguments of an engine whose logits are to be read.
RAW_LOGITS = {"logprobs_mode": "raw_logits", "max_logprobs": -1}
