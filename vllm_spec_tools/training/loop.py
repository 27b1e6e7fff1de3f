"""A training run of any kind of heads: the optimiser's steps, checkpoints, measurements, and what it leaves."""

import json
import math
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vllm_spec_plugin.schema.errors import UserError, show
from vllm_spec_tools.engines.model_source import model_source
from vllm_spec_tools.progress import Tasks
from vllm_spec_tools.report import write
from vllm_spec_tools.report.provenance import provenance
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.data import read_data
from vllm_spec_tools.training.objective import Objective
from vllm_spec_tools.training.options import RunOptions
from vllm_spec_tools.training.report import figures_of, report_of
from vllm_spec_tools.training.rows import DATA, OwnText, RowBatch, TokenRow, batches_forever, data_kinds, own_kinds
from vllm_spec_tools.training.target_engine import TargetEngine

WARMUP_SHARE = 0.03
LAST_RATE = 0.01
SMOOTHING = 0.95
SAVES = 10


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up, then half a cosine down to almost nothing."""
    warmup = max(1, round(steps * WARMUP_SHARE))
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return peak * (LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * done)))


class Training:
    """Heads, trained in place, their optimiser, and where they are on their way."""

    def __init__(
        self,
        heads: torch.nn.Module,
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

    def state(self) -> dict[str, Any]:
        """Collects the state with which `load` resumes the run."""
        return {
            "step": self.step,
            "heads": self.heads.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes to where `state` was taken; only on a fresh object."""
        self.heads.load_state_dict(state["heads"])
        self._optimiser.load_state_dict(state["optimiser"])
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
        return losses.mean().item()


class Checkpoint:
    """The folder `checkpoint` in the folder that heads are trained into."""

    def __init__(self, out: Path, weights: str) -> None:
        """Takes the folder, and the name of the file of finished heads in it."""
        self._out, self._weights, self.folder = out, weights, out / "checkpoint"
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
        _replace(self._arguments, lambda half: half.write_text(json.dumps(arguments, indent=2), encoding="utf-8"))

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
            kind = type(error).__name__
            raise UserError(f"{self._state}: cannot be read: {kind}; start again with --restart") from None
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Replaces what was saved; an interrupted write leaves the last one."""
        _replace(self._state, lambda half: torch.save(state, half))


def _replace(path: Path, write_to: Callable[[Path], object]) -> None:
    half = path.with_suffix(".new")
    write_to(half)
    half.replace(path)


def train(
    objective: Objective[Any], out: Path, console: Console, restart: bool, more_origin: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """Trains heads, measures them on held-out text, and writes them.

    Args:
        out: gets config.json and the weights; on the way, `checkpoint`.
        restart: whether an interrupted run in `out` is discarded.

    Returns:
        The section `held_out` of config.json: figures by kind of text.

    Raises:
        UserError: one message that names the option.
        KeyboardInterrupt: after a checkpoint was written.
    """
    options, backbone = objective.options, objective.backbone
    _check_max_length(options, backbone)
    data = read_data(options.data, backbone.render)
    checkpoint = Checkpoint(out, objective.weights)
    checkpoint.begin(asdict(options) | {"sha256 of the data": data.sha256}, restart=restart)
    with Tasks(console) as tasks:
        with TargetEngine(model_source("--model", options.model, "target"), options.max_length) as engine:
            path = checkpoint.folder / "own-text.jsonl"
            own = OwnText(backbone, path, options.max_length, options.seed, engine.write)
            kinds = data_kinds(backbone, data, options, tasks) + own_kinds(own, data, options, tasks)
        objective.start(kinds)
        if options.steps:
            training = Training(objective.heads, objective.learn, [kind.train for kind in kinds], options)
            _train_to_end(training, options, checkpoint, tasks)
        objective.save(out, {})
        objective.load(out)
        ranks = {}
        with tasks.task("measuring on held-out text", len(kinds)) as advance:
            for done, kind in enumerate(kinds, 1):
                ranks[kind.name] = objective.rank(kind.held_out)
                advance(done)
            held_out = {name: figures_of(found, is_own=name != DATA) for name, found in ranks.items()}
            figures = objective.figures(ranks, kinds, held_out)
    origin = provenance(sys.argv[1:], options.seed, (), {"target": options.model}, packages=("safetensors",)) | {
        "options": asdict(options),
        "data_sha256": data.sha256,
        "training_tokens": {kind.name: kind.num_tokens for kind in kinds},
        "device": str(backbone.device),
    }
    objective.save(out, {**figures, "provenance": origin | dict(more_origin or {})})
    shutil.rmtree(checkpoint.folder)
    found: dict[str, dict[str, Any]] = figures["held_out"]
    write(report_of(found, objective.unit, origin), terminal=console)
    return found


def _check_max_length(options: RunOptions, backbone: Backbone) -> None:
    """Checks that a row has all tokens ahead, and fits the target."""
    shortest = options.tokens_ahead + 2
    if not shortest <= options.max_length <= (backbone.context or math.inf):
        raise UserError(
            f"--max-length: got {options.max_length}; allowed: from {shortest}, for {options.tokens_ahead} tokens ahead"
            + (f", to {backbone.context}, which is all that {options.model} reads" if backbone.context else "")
        )


def _train_to_end(training: Training, options: RunOptions, checkpoint: Checkpoint, tasks: Tasks) -> None:
    """Trains from the latest checkpoint to the end; an interrupt saves and raises KeyboardInterrupt."""
    if (state := checkpoint.load()) is not None:
        training.load(state)
    smooth, save_every = math.nan, max(1, options.steps // SAVES)
    with tasks.task("training", options.steps, training.step) as advance, _interrupts_wait() as is_interrupted:
        while training.step < options.steps:
            loss = training.advance()
            smooth = loss if math.isnan(smooth) else SMOOTHING * smooth + (1 - SMOOTHING) * loss
            advance(training.step, f"loss {smooth:.3f}")
            if training.step % save_every == 0 or is_interrupted():
                checkpoint.save(training.state())
            if is_interrupted():
                raise KeyboardInterrupt


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
