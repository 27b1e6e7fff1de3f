"""A target whose tokens are scripted, for benchmarks that measure everything but the target."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

# Base of the token ids' two digits in the hidden states; bfloat16 holds such digits exactly.
_BASE = 256
# Above every logit of a model, and finite after division by a temperature.
_CERTAIN = 1e4


@contextlib.contextmanager
def scripted_target(
    runner: Any, script: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *, is_computed: bool
) -> Iterator[None]:
    """Replaces the outputs of a runner's target within the context.

    Args:
        runner: vLLM's model runner.
        script: takes token ids and positions, both [num_tokens], and returns the next token of each row.
        is_computed: whether the target's forward pass and logits are computed first, to keep a step's time; else hidden
            states are zeros.
    """
    forward, head = runner._model_forward, runner.model.compute_logits
    config = runner.model_config
    shape, dtype, vocab_size = config.get_hidden_size(), config.dtype, config.get_vocab_size()

    def scripted_forward(*, input_ids: Any, positions: Any, **kwargs: Any) -> Any:
        token_ids = script(input_ids, positions)
        if is_computed:
            hidden = forward(input_ids=input_ids, positions=positions, **kwargs)
        else:
            hidden = torch.zeros(len(input_ids), shape, dtype=dtype, device=input_ids.device)
        hidden[:, 0], hidden[:, 1] = token_ids % _BASE, token_ids // _BASE
        return hidden

    def scripted_head(hidden: Any) -> Any:
        token_ids = hidden[:, 0].long() + _BASE * hidden[:, 1].long()
        if is_computed:
            logits = head(hidden)
        else:
            logits = torch.zeros(len(hidden), vocab_size, dtype=dtype, device=hidden.device)
        return logits.scatter_(1, token_ids[:, None], _CERTAIN)

    runner._model_forward, runner.model.compute_logits = scripted_forward, scripted_head
    try:
        yield
    finally:
        del runner._model_forward, runner.model.compute_logits
