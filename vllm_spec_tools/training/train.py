"""A training run from its options to a folder of heads."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vllm_spec_plugin.proposers.medusa.checkpoint import load_heads, read_heads_config, save_heads
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_plugin.proposers.medusa.tensor_file import OUR_FILE
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.progress import Tasks
from vllm_spec_tools.report import Files, write
from vllm_spec_tools.training.backbone import Backbone, load_backbone
from vllm_spec_tools.training.data import read_data
from vllm_spec_tools.training.distill import OwnText
from vllm_spec_tools.training.drawn import drawn_paths, drawn_shares
from vllm_spec_tools.training.kinds import DATA, Kind, data_kind, own_kinds
from vllm_spec_tools.training.loop import Training
from vllm_spec_tools.training.measurement import MAX_PATHS, Ranks, rank_rows
from vllm_spec_tools.training.objective import teacher
from vllm_spec_tools.training.options import Options
from vllm_spec_tools.training.report import Measurement, Served, for_config, measurement, report_of
from vllm_spec_tools.training.resume import Checkpoint
from vllm_spec_tools.training.rows import Row
from vllm_spec_tools.training.stages import QUICK_TOKENS, origin_of, some, train_to_end
from vllm_spec_tools.training.start import first_heads, given_heads, given_shape

HEADS = 4
RATE = 0.064  # 1e-3 at a hidden size of 4096, 4e-3 at 256: wider layers move more for the same rate


def train_heads(
    options: Options, out: Path, console: Console, *, restart: bool = False, files: Files | None = None
) -> list[Measurement]:
    """Trains heads, measures them on held-out text, and writes them in this project's layout.

    Args:
        options: what to do; `heads` and `layers` are those of `start` if that is given, or fewer heads.
        out: gets config.json, the weights and, if anything was trained, training.png; on the way, `checkpoint`.
        files: further files for the report; its picture is training.png unless one is named.

    Raises:
        UserError: one message that names the option.
        KeyboardInterrupt: after a checkpoint was written.
    """
    begin = time.time()
    options = _settle(options)
    backbone = load_backbone(options.model)
    if options.learning_rate is None:
        options = replace(options, learning_rate=RATE / math.sqrt(backbone.hidden_size))
    _check(options, backbone)
    data = read_data(options.data, backbone.render)
    checkpoint = Checkpoint(out, OUR_FILE)
    arguments = options.arguments()
    checkpoint.begin(arguments | {"sha256 of the data": data.sha256}, restart=restart)
    with Tasks(console) as tasks:
        kinds = [data_kind(backbone, data, options, tasks)]
        own = OwnText(backbone, checkpoint.folder / "own-text.jsonl", options.max_length, options.seed)
        kinds += own_kinds(backbone, own, data, options, tasks)
        heads = _new_heads(backbone, options)
        learn = teacher(backbone, heads, soft=options.labels == "soft")
        training = Training(heads, learn, [kind.train for kind in kinds], options) if options.steps else None
        seconds = own.seconds_before
        if training is not None:
            seconds = train_to_end(
                training,
                lambda rows: _rank(backbone, training.heads, rows, options),
                kinds,
                options,
                checkpoint,
                tasks,
                begin,
                own.seconds_before,
            )
        config: dict[str, Any] = {"base_model_name_or_path": options.model}
        dtype = getattr(torch, options.dtype)
        # Measured as they will be loaded, with the rounding of the file.
        save_heads(heads, out, config, dtype)
        heads = load_heads(str(out), backbone.hidden_size, backbone.vocab_size, torch.float32, backbone.device)
        measurements, served = _measure_all(backbone, heads, kinds, options)
        drawn = _drawn(backbone, heads, kinds, options)
    # Heads that were only measured keep their history.
    earlier = read_heads_config(options.start).provenance if options.start and not options.steps else None
    origin = origin_of("train-medusa", options, data, kinds, seconds + time.time() - begin, backbone)
    figures = for_config(measurements, served, drawn)
    save_heads(heads, out, {**config, **figures, "provenance": origin | ({"of": earlier} if earlier else {})}, dtype)
    title = f"{options.num_heads} Medusa heads for {Path(options.model).name}"
    history = training.history if training is not None else None
    report = report_of("train-medusa", title, measurements, history, origin)
    checkpoint.remove()
    files = files or Files()
    write(report, terminal=console, **vars(replace(files, png=files.png or out / "training.png")))
    return measurements


def _settle(options: Options) -> Options:
    if options.start is None:
        return replace(options, heads=options.heads or HEADS)
    num_heads, num_layers = given_shape(options.start)
    if (options.heads or 0) > num_heads:
        raise UserError(
            f"--heads: got {options.heads}, and {options.start} has {num_heads}; allowed: up to {num_heads} with --from"
        )
    return replace(options, heads=options.heads or num_heads, layers=num_layers)


def _check(options: Options, backbone: Backbone) -> None:
    if backbone.context is not None and options.max_length > backbone.context:
        raise UserError(
            f"--max-length: got {options.max_length}; allowed: up to {backbone.context}, which is all that "
            f"{options.model} reads"
        )
    shortest = options.num_heads + 2
    if options.max_length < shortest:
        raise UserError(
            f"--max-length: got {options.max_length} for {options.num_heads} heads; allowed: from {shortest}"
        )


def _new_heads(backbone: Backbone, options: Options) -> MedusaHeads:
    if options.start is not None:
        return given_heads(backbone, options.start, options.num_heads)
    return first_heads(backbone, options.num_heads, options.layers)


def _rank(backbone: Backbone, heads: MedusaHeads, rows: Sequence[Row], options: Options) -> Ranks:
    return rank_rows(backbone, heads, rows, options.batch_tokens, soft=options.labels == "soft")


def _drawn(
    backbone: Backbone, heads: MedusaHeads, kinds: Sequence[Kind], options: Options
) -> list[tuple[list[int], float]]:
    """Paths of drawn drafts, on the target's own sampled text if there is any, else on the data."""
    rows = [row for kind in kinds for row in kind.held_out if row.temperature]
    rows = rows or [row for kind in kinds for row in kind.held_out if row.temperature is None]
    shares = drawn_shares(backbone, heads, some(rows, QUICK_TOKENS), options.batch_tokens, options.seed)
    return drawn_paths(shares, MAX_PATHS)


def _measure_all(
    backbone: Backbone, heads: MedusaHeads, kinds: Sequence[Kind], options: Options
) -> tuple[list[Measurement], Served]:
    ranks = {kind.name: _rank(backbone, heads, kind.held_out, options) for kind in kinds}
    measurements = [measurement(name, found, is_own=name != DATA) for name, found in ranks.items()]
    own = {name: found for name, found in ranks.items() if name != DATA} or ranks
    greedy = {kind.name for kind in kinds if any(row.temperature == 0 for row in kind.held_out)}
    return measurements, Served(
        own,
        {name: found for name, found in own.items() if name in greedy} or own,
        {name: found for name, found in ranks.items() if name in own.keys() - greedy} or {DATA: ranks[DATA]},
    )
