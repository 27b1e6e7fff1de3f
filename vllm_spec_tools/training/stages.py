"""Stages that the training of all kinds of heads has in common."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from vllm_spec_tools.progress import Tasks
from vllm_spec_tools.report.provenance import provenance
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.data import Data
from vllm_spec_tools.training.kinds import Kind
from vllm_spec_tools.training.loop import Training, run
from vllm_spec_tools.training.measurement import Ranks
from vllm_spec_tools.training.options import RunOptions
from vllm_spec_tools.training.resume import Checkpoint
from vllm_spec_tools.training.rows import Row

MEASUREMENTS = 16  # on the way
QUICK_TOKENS = 8192  # of each kind, for those
SAVES = 10


def train_to_end(
    training: Training[Any],
    rank: Callable[[Sequence[Row]], Ranks],
    kinds: Sequence[Kind],
    options: RunOptions,
    checkpoint: Checkpoint,
    tasks: Tasks,
    begin: float,
    before: float,
) -> float:
    """Trains from the latest checkpoint to the end.

    Args:
        training: what is trained, and by what.
        kinds: kinds of text; a part of their held-out rows is measured on the way.
        before: seconds that earlier, interrupted runs took, if they came to no checkpoint.

    Returns:
        The seconds that earlier, interrupted runs took.
    """
    state = checkpoint.load()
    if state is not None:
        before = state.pop("seconds")
        training.load(state)
    quick = [row for kind in kinds for row in some(kind.held_out, QUICK_TOKENS)]

    def measure() -> None:
        ranks = rank(quick)
        training.history.steps.append(training.step)
        training.history.held_out_loss.append(list(ranks.loss))
        training.history.held_out_accuracy.append((ranks.together[1:] == 0).float().mean(1).tolist())

    with tasks.task("training", options.steps) as advance:
        run(
            training,
            options.steps,
            save=lambda: checkpoint.save(training.state() | {"seconds": before + time.time() - begin}),
            save_every=max(1, options.steps // SAVES),
            measure=measure,
            measure_every=max(1, options.steps // MEASUREMENTS),
            on_step=lambda step, loss: advance(step, f"loss {loss:.3f}"),
        )
    return before


def some(rows: Sequence[Row], num_tokens: int) -> list[Row]:
    """Returns the first rows with up to `num_tokens` tokens in all; at least one."""
    chosen: list[Row] = []
    for row in rows:
        chosen.append(row)
        num_tokens -= len(row.tokens)
        if num_tokens <= 0:
            break
    return chosen


def origin_of(
    command: str, options: RunOptions, data: Data, kinds: Sequence[Kind], seconds: float, backbone: Backbone
) -> dict[str, Any]:
    """Returns the provenance of trained heads."""
    models, program = {"target": options.model}, f"vllm-spec {command}"
    return provenance(options.command_line(), options.seed, (), models, program, ("safetensors",)) | {
        "options": options.arguments(),
        "data_sha256": data.sha256,
        "training_tokens": {kind.name: kind.num_tokens for kind in kinds},
        "seconds": round(seconds, 1),
        "device": str(backbone.device),
    }
