"""The optimiser's steps."""

import math
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch

from vllm_spec_tools.training.options import RunOptions
from vllm_spec_tools.training.rows import Batch, Row, batches_forever

WARMUP_SHARE = 0.03
LAST_RATE = 0.01
SMOOTHING = 0.95

Heads = TypeVar("Heads", bound=torch.nn.Module)


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up, then half a cosine down to almost nothing."""
    warmup = max(1, round(steps * WARMUP_SHARE))
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return peak * (LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * done)))


@dataclass
class History:
    """How training went: plain lists, so that they can be saved.

    Attributes:
        loss: per step, each head's mean cross entropy in nats.
        steps: after how many steps the heads were measured on held-out text.
        held_out_loss: then, of each head.
        held_out_accuracy: then, of each head: how often its best token was right.
    """

    loss: list[list[float]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    held_out_loss: list[list[float]] = field(default_factory=list)
    held_out_accuracy: list[list[float]] = field(default_factory=list)


class Training(Generic[Heads]):
    """Heads, their optimiser, and where they are on their way."""

    def __init__(
        self,
        heads: Heads,
        learn: Callable[[Batch, float], torch.Tensor],
        kinds: Sequence[Sequence[Row]],
        options: RunOptions,
    ) -> None:
        """Prepares to learn from `kinds`, rows of one temperature each, in equal shares.

        Args:
            learn: adds the gradients of a batch to those of `heads`, given the share of steps done; returns the mean
                loss of each token ahead.
            options: steps, batch size, learning rate and seed.
        """
        self._learn = learn
        assert options.learning_rate is not None
        self._options = options
        self._peak = options.learning_rate
        self.heads = heads
        self._optimiser = torch.optim.AdamW(
            heads.parameters(), lr=self._peak, betas=(0.9, 0.99), weight_decay=0.0, fused=True
        )
        self._batches = batches_forever(kinds, options.batch_tokens, options.seed)
        self.step = 0
        self.history = History()

    def state(self) -> dict[str, Any]:
        """All that `load` needs to go on as if nothing had happened."""
        return {
            "step": self.step,
            "heads": self.heads.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "history": vars(self.history),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes to where `state` was taken; only on a fresh object."""
        self.heads.load_state_dict(state["heads"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.history = History(**state["history"])
        self.step = state["step"]
        for _ in range(self.step):
            next(self._batches)

    def advance(self) -> float:
        """One step; the mean of the heads' losses before it."""
        batch = next(self._batches)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate(self.step, self._options.steps, self._peak)
        self._optimiser.zero_grad()
        losses = self._learn(batch, self.step / self._options.steps)
        self._optimiser.step()
        self.step += 1
        self.history.loss.append(losses.tolist())
        return losses.mean().item()


def run(
    training: Training[Any],
    steps: int,
    save: Callable[[], None],
    save_every: int,
    measure: Callable[[], None],
    measure_every: int,
    on_step: Callable[[int, float], None],
) -> None:
    """Trains up to `steps`, saving and measuring on the way; an interrupt saves and raises KeyboardInterrupt.

    Args:
        training: at any step.
        save_every: steps between two.
        measure: appends to the history; also before the first and after the last step.
        measure_every: steps between two.
    """
    smooth = math.nan
    with _interrupts_wait() as is_interrupted:
        while training.step < steps:
            if training.step % measure_every == 0 and training.step not in training.history.steps:
                measure()
            loss = training.advance()
            smooth = loss if math.isnan(smooth) else SMOOTHING * smooth + (1 - SMOOTHING) * loss
            on_step(training.step, smooth)
            if training.step % save_every == 0 or is_interrupted():
                save()
            if is_interrupted():
                raise KeyboardInterrupt
        if training.step not in training.history.steps:
            measure()


@contextmanager
def _interrupts_wait() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and termination are noted instead of raised: in the middle of a step they would leave half of it."""
    noted: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, frame: noted.append(number)) for number in signals]
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
