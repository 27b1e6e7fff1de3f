"""A training run of any kind of heads: the optimiser's steps, checkpoints, measurements, and what it leaves."""

import json
import math
import shutil
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from rich.console import Console

from vllm_spec_plugin.schema.errors import UserError, show
from vllm_spec_tools.progress import Tasks
from vllm_spec_tools.report import Files, Report, write
from vllm_spec_tools.report.provenance import provenance
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.data import read_data
from vllm_spec_tools.training.measurement import Ranks
from vllm_spec_tools.training.options import RunOptions
from vllm_spec_tools.training.rows import Kind, OwnText, RowBatch, TokenRow, batches_forever, data_kinds, own_kinds

WARMUP_SHARE = 0.03
LAST_RATE = 0.01
SMOOTHING = 0.95
MEASUREMENTS = 16  # on the way
QUICK_TOKENS = 8192  # most of each kind, for those
_QUICK_SHARE = 0.1  # most tokens of all of them, relative to those of all steps
SAVES = 10

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
    """Records of a training: plain lists, so that they can be saved.

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
    """Heads, trained in place, their optimiser, and where they are on their way."""

    def __init__(
        self,
        heads: Heads,
        learn: Callable[[RowBatch, float], torch.Tensor],
        kinds: Sequence[Sequence[TokenRow]],
        options: RunOptions,
    ) -> None:
        """Prepares to learn from `kinds`, rows of one temperature each, in equal shares.

        Args:
            learn: adds the gradients of a batch to those of `heads`, given the share of steps done; returns the mean
                loss of each token ahead.
        """
        assert options.learning_rate is not None
        self._learn, self._options, self._peak = learn, options, options.learning_rate
        self.heads = heads
        self._optimiser = torch.optim.AdamW(
            heads.parameters(), lr=self._peak, betas=(0.9, 0.99), weight_decay=0.0, fused=True
        )
        self._batches = batches_forever(kinds, options.batch_tokens, options.seed)
        self.step = 0
        self.history = History()

    def state(self) -> dict[str, Any]:
        """Collects the state with which `load` resumes the run."""
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


class Checkpoint:
    """The folder `checkpoint` in the folder that heads are trained into."""

    def __init__(self, out: Path, weights: str) -> None:
        """Takes the folder, and the name of the file of finished heads in it."""
        self._out, self._weights = out, weights
        self.folder = out / "checkpoint"
        self._arguments, self._state = self.folder / "arguments.json", self.folder / "state.pt"

    def begin(self, arguments: dict[str, Any], *, restart: bool) -> None:
        """Makes the folder, or finds that of an interrupted run with the same arguments.

        Raises:
            UserError: there is a run with other arguments, or finished heads.
        """
        advice = "or start again with --restart"
        if restart:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self._arguments.is_file():
            before = json.loads(self._arguments.read_text(encoding="utf-8"))
            differing = [
                f"{key} {show(before.get(key))} there and {show(arguments.get(key))} here"
                for key in sorted(before.keys() | arguments.keys())
                if before.get(key) != arguments.get(key)
            ]
            if differing:
                raise UserError(
                    f"--out {self._out}: holds an interrupted run with other arguments: {'; '.join(differing)}; "
                    f"allowed: the same ones, to go on with it; {advice}"
                )
            return
        elif (self._out / self._weights).is_file():
            raise UserError(f"--out {self._out}: holds heads already; allowed: another folder; {advice}")
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self._arguments.with_suffix(".new")
        half.write_text(json.dumps(arguments, indent=2), encoding="utf-8")
        half.replace(self._arguments)

    def load(self) -> dict[str, Any] | None:
        """Loads the latest saved state; None if nothing was saved.

        Raises:
            UserError: the file is broken.
        """
        if not self._state.is_file():
            return None
        try:
            state: dict[str, Any] = torch.load(self._state, weights_only=True)
        except Exception as error:  # a broken zip, pickle or tensor
            raise UserError(
                f"{self._state}: cannot be read: {type(error).__name__}; start again with --restart"
            ) from None
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Replaces what was saved; an interrupted write leaves the last one."""
        half = self._state.with_suffix(".new")
        torch.save(state, half)
        half.replace(self._state)

    def remove(self) -> None:
        """Removes the saved state: the run is complete."""
        shutil.rmtree(self.folder)


class Course(ABC, Generic[Heads]):
    """Operations that differ between kinds of heads."""

    command: str
    weights: str

    @abstractmethod
    def new_heads(self, kinds: Sequence[Kind]) -> Heads:
        """The heads that training starts from."""

    @abstractmethod
    def teacher(self, heads: Heads) -> Callable[[RowBatch, float], torch.Tensor]:
        """Creates the function with which `Training` learns a batch."""

    @abstractmethod
    def rank(self, heads: Heads, rows: Sequence[TokenRow]) -> Ranks:
        """Ranks the tokens of held-out rows."""

    @abstractmethod
    def save(self, heads: Heads, out: Path, more: dict[str, Any]) -> None:
        """Writes the weights, and config.json with `more`."""

    @abstractmethod
    def load(self, out: Path) -> Heads:
        """Reads heads that were saved, with the rounding of the file."""

    @abstractmethod
    def measure(self, heads: Heads, kinds: Sequence[Kind], advance: Callable[[int], None]) -> dict[str, Any]:
        """Figures for config.json, on held-out text.

        Args:
            advance: is called with the number of kinds measured.
        """

    @abstractmethod
    def report(self, history: History | None, origin: dict[str, Any]) -> Report:
        """The report of what `measure` found."""


def train(
    course: Course[Any],
    options: RunOptions,
    backbone: Backbone,
    out: Path,
    console: Console,
    restart: bool,
    files: Files | None,
    more_origin: dict[str, Any] | None = None,
) -> None:
    """Trains heads, measures them on held-out text, and writes them to `out`; on the way `checkpoint` is there.

    Raises:
        UserError: one message that names the option.
        KeyboardInterrupt: after a checkpoint was written.
    """
    begin = time.time()
    data = read_data(options.data, backbone.render)
    checkpoint = Checkpoint(out, course.weights)
    checkpoint.begin(options.arguments() | {"sha256 of the data": data.sha256}, restart=restart)
    with Tasks(console) as tasks:
        kinds = data_kinds(backbone, data, options, tasks)
        own = OwnText(backbone, checkpoint.folder / "own-text.jsonl", options.max_length, options.seed)
        kinds += own_kinds(backbone, own, data, options, tasks)
        heads, seconds, training = course.new_heads(kinds), own.seconds_before, None
        if options.steps:
            training = Training(heads, course.teacher(heads), [kind.train for kind in kinds], options)
            seconds = _train_to_end(training, course, kinds, options, checkpoint, tasks, begin, seconds)
        course.save(heads, out, {})
        heads = course.load(out)
        with tasks.task("measuring on held-out text", len(kinds)) as advance:
            figures = course.measure(heads, kinds, advance)
    models, program = {"target": options.model}, f"vllm-spec {course.command}"
    origin = provenance(options.command_line(), options.seed, (), models, program, ("safetensors",)) | {
        "options": options.arguments(),
        "data_sha256": data.sha256,
        "training_tokens": {kind.name: kind.num_tokens for kind in kinds},
        "seconds": round(seconds + time.time() - begin, 1),
        "device": str(backbone.device),
    }
    course.save(heads, out, {**figures, "provenance": origin | (more_origin or {})})
    report = course.report(training.history if training is not None else None, origin)
    checkpoint.remove()
    files = files or Files()
    write(report, terminal=console, **vars(replace(files, png=files.png or out / "training.png")))


def check_max_length(options: RunOptions, backbone: Backbone) -> None:
    """Checks that a row has all tokens ahead, and fits the target.

    Raises:
        UserError: it is not so.
    """
    shortest = options.tokens_ahead + 2
    if not shortest <= options.max_length <= (backbone.context or math.inf):
        raise UserError(
            f"--max-length: got {options.max_length}; allowed: from {shortest}, for {options.tokens_ahead} tokens ahead"
            + (f", to {backbone.context}, which is all that {options.model} reads" if backbone.context else "")
        )


def _train_to_end(
    training: Training[Any],
    course: Course[Any],
    kinds: Sequence[Kind],
    options: RunOptions,
    checkpoint: Checkpoint,
    tasks: Tasks,
    begin: float,
    before: float,
) -> float:
    """Trains from the latest checkpoint to the end; an interrupt saves and raises KeyboardInterrupt.

    Args:
        before: seconds that earlier, interrupted runs took, if they came to no checkpoint.

    Returns:
        The seconds that earlier, interrupted runs took.
    """
    state = checkpoint.load()
    if state is not None:
        before = state.pop("seconds")
        training.load(state)
    share = options.steps * options.batch_tokens * _QUICK_SHARE / MEASUREMENTS / len(kinds)
    quick = [row for kind in kinds for row in some(kind.held_out, min(QUICK_TOKENS, round(share)))]
    history = training.history

    def measure() -> None:
        if training.step in history.steps:
            return
        ranks = course.rank(training.heads, quick)
        history.steps.append(training.step)
        history.held_out_loss.append(list(ranks.loss))
        history.held_out_accuracy.append((ranks.together[1:] == 0).float().mean(1).tolist())

    smooth = math.nan
    save_every, measure_every = max(1, options.steps // SAVES), max(1, options.steps // MEASUREMENTS)
    with tasks.task("training", options.steps, training.step) as advance, _interrupts_wait() as is_interrupted:
        while training.step < options.steps:
            if training.step % measure_every == 0:
                measure()
            loss = training.advance()
            smooth = loss if math.isnan(smooth) else SMOOTHING * smooth + (1 - SMOOTHING) * loss
            advance(training.step, f"loss {smooth:.3f}")
            if training.step % save_every == 0 or is_interrupted():
                checkpoint.save(training.state() | {"seconds": before + time.time() - begin})
            if is_interrupted():
                raise KeyboardInterrupt
        measure()
    return before


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


def some(rows: Sequence[TokenRow], num_tokens: int) -> list[TokenRow]:
    """Returns the first rows with up to `num_tokens` tokens in all; at least one."""
    chosen: list[TokenRow] = []
    for row in rows:
        chosen.append(row)
        num_tokens -= len(row.tokens)
        if num_tokens <= 0:
            break
    return chosen
