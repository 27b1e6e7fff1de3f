"""Draft tokens that each verification accepts of each kind of drafts, by two models' logits, without an engine."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from vllm_spec_plugin.v1.verification.block import reflected

Logits = Callable[[Sequence[int]], torch.Tensor]
"""Returns [rows, vocab_size] logits, one row after each token of a text."""

KINDS = ("greedy, token", "probabilistic, token", "probabilistic, block", "greedy, coupled", "shared, coupled")


def accepted_tokens(
    target: Logits, draft: Logits, text: list[int], num_steps: int, num_tokens: int, temperature: float, seed: int
) -> Iterator[tuple[float, ...]]:
    """Yields per step the accepted tokens of each of `KINDS`: expected ones by rejection, counted ones if coupled.

    The text grows by the output of the last kind; that of all is the same in distribution.

    Args:
        target: [rows, vocab_size] logits after each token of a text.
        draft: the same of the draft model.
        text: the prompt, extended in place.
        num_steps: steps.
        num_tokens: K of each draft.
        temperature: of target and drafts, above 0.
        seed: of the noise, which depends on seed and position alone.
    """
    generator = torch.Generator()

    def noise(position: int, salt: int) -> torch.Tensor:
        generator.manual_seed((seed << 24) + (position << 1) + salt)
        return -torch.empty(vocab_size).exponential_(generator=generator).log()

    vocab_size = target(text[:1]).shape[-1]
    for _ in range(num_steps):
        start, found = len(text), []
        drafts = {}
        for kind, salt in (("greedy", None), ("own", 1), ("shared", 0)):
            tokens, probs = list(text), []
            for _ in range(num_tokens):
                scores = draft(tokens)[-1] / temperature
                token = int((scores if salt is None else scores + noise(len(tokens), salt)).argmax())
                probs.append(1.0 if salt is None else float(scores.softmax(-1)[token]))
                tokens.append(token)
            drafts[kind] = tokens[start:], torch.tensor(probs)
        for kind, (tokens, q) in drafts.items():
            rows = target([*text, *tokens])[start - 1 :] / temperature
            p = rows.softmax(-1)[:-1].gather(1, torch.tensor(tokens)[:, None])[:, 0]
            sampled = [int((row + noise(start + i, 0)).argmax()) for i, row in enumerate(rows)]
            equal = int(np.cumprod([one == other for one, other in zip(sampled, tokens, strict=False)]).sum())
            if kind == "greedy":
                found += [float(p.cumprod(0).sum()), float(equal)]
            elif kind == "own":
                ratio = (p / q).double()[None]
                found += [float(ratio.clamp_max(1).cumprod(1).sum()), float(reflected(ratio).sum())]
            else:
                found.append(float(equal))
                output = sampled[: equal + 1]
        text += output
        by_greedy, greedy_coupled, by_token, by_block, shared = found
        yield by_greedy, by_token, by_block, greedy_coupled, shared
