"""Options of a training run."""

from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class RunOptions:
    """The arguments that all training commands have.

    Attributes:
        learning_rate: the highest; None goes by the target's hidden size.
        max_length: tokens of a text that the target reads at once.
        temperatures: at which they are made, in equal shares.
    """

    model: str
    data: tuple[str, ...]
    _: KW_ONLY
    steps: int = 2000
    batch_tokens: int = 2048
    learning_rate: float | None = None
    max_length: int = 512
    self_distill: int = 0
    temperatures: tuple[float, ...] = (0.0, 1.0)
    dtype: Literal["float16", "bfloat16", "float32"] = "float16"
    seed: int = 0

    @property
    def tokens_ahead(self) -> int:
        """The number of tokens that are drafted after the target's own next one."""
        raise NotImplementedError

    def arguments(self) -> dict[str, Any]:
        """By the names they have on the command line."""
        names = {"temperatures": "self-distill-temperature", "start": "from"}
        return {
            names.get(key, key.replace("_", "-")): list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }

    def command_line(self) -> list[str]:
        """As given to the command."""
        words = []
        for name, value in self.arguments().items():
            for one in value if isinstance(value, list) else () if value is None else (value,):
                words += [f"--{name}", str(one)]
        return words


@dataclass(frozen=True)
class Options(RunOptions):
    """The arguments of `vllm-spec train-medusa` that decide what heads come out.

    Attributes:
        heads: how many to train; None is as many as `start` has, or 4.
        start: heads to start from; None is from the target's own output layer.
        labels: soft is the target's distribution, hard is the token that follows.
    """

    heads: int | None = None
    layers: int = 1
    start: str | None = None
    labels: Literal["soft", "hard"] = "soft"

    @property
    def num_heads(self) -> int:
        """How many heads, once that is settled."""
        assert self.heads is not None
        return self.heads

    @property
    def tokens_ahead(self) -> int:
        """See `RunOptions`: one per head."""
        return self.num_heads


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
