"""Options of a training run of an EAGLE-3 head."""

from dataclasses import dataclass

from vllm_spec_tools.training.options import RunOptions


@dataclass(frozen=True)
class Eagle3Options(RunOptions):
    """The arguments of `vllm-spec train-eagle3` that decide what head comes out.

    Attributes:
        draft_vocab: size of the head's vocabulary, the most frequent tokens; None is the target's, at most 32,000.
        aux_layers: ids of the target's layers whose hidden states the head takes; None spreads three.
    """

    draft_tokens: int = 5
    draft_vocab: int | None = None
    aux_layers: tuple[int, ...] | None = None

    @property
    def tokens_ahead(self) -> int:
        """See `RunOptions`."""
        return self.draft_tokens
