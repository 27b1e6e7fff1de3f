"""Trains Medusa heads: from options to a folder."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vllm_spec_plugin.proposers.medusa.checkpoint import (
    load_heads,
    read_heads_config,
    save_heads,
)
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_plugin.proposers.medusa.tensor_file import OUR_FILE
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.report import Files, Report
from vllm_spec_tools.training.backbone import Backbone, load_backbone
from vllm_spec_tools.training.loop import QUICK_TOKENS, Course, History, check_max_length, some, train
from vllm_spec_tools.training.measurement import MAX_PATHS, Ranks, drawn_paths, drawn_shares, rank_rows
from vllm_spec_tools.training.objective import teacher
from vllm_spec_tools.training.options import Options
from vllm_spec_tools.training.report import HeadMeasurement, for_config, measurement, report_of
from vllm_spec_tools.training.rows import DATA, Kind, RowBatch, TokenRow

HEADS = 4
RATE = 0.064  # 1e-3 at a hidden size of 4096, 4e-3 at 256: wider layers move more for the same rate


def train_heads(
    options: Options, out: Path, console: Console, *, restart: bool = False, files: Files | None = None
) -> list[HeadMeasurement]:
    """Trains heads, measures them on held-out text, and writes them in this project's layout.

    Args:
        out: gets config.json, the weights and, if anything was trained, training.png; on the way, `checkpoint`.
        files: further files for the report; its picture is training.png unless one is named.

    Raises:
        UserError: one message that names the option.
        KeyboardInterrupt: after a checkpoint was written.
    """
    options = _settle(options)
    backbone = load_backbone(options.model)
    if options.learning_rate is None:
        options = replace(options, learning_rate=RATE / math.sqrt(backbone.hidden_size))
    check_max_length(options, backbone)
    # Heads that were only measured keep their history.
    earlier = read_heads_config(options.start).provenance if options.start and not options.steps else None
    course = _MedusaCourse(options, backbone)
    train(course, options, backbone, out, console, restart, files, {"of": earlier} if earlier else None)
    return course.measurements


def first_heads(backbone: Backbone, num_heads: int, num_layers: int) -> MedusaHeads:
    """Heads that all say what the target itself says next (Cai et al., section 2.2.1).

    The residual blocks add nothing and the projection is the target's output layer.
    """
    heads = MedusaHeads(
        backbone.hidden_size, backbone.vocab_size, num_heads, num_layers, torch.float32, backbone.device
    )
    with torch.no_grad():
        heads.projection.copy_(backbone.output_layer.weight.float().T)
    return heads


def _settle(options: Options) -> Options:
    if options.start is None:
        return replace(options, heads=options.heads or HEADS)
    try:
        config = read_heads_config(options.start)
    except UnreadableError as error:
        raise UserError(f"--from: {error}") from None
    if (options.heads or 0) > config.num_heads:
        raise UserError(
            f"--heads: got {options.heads}, and {options.start} has {config.num_heads}; allowed: up to "
            f"{config.num_heads} with --from"
        )
    return replace(options, heads=options.heads or config.num_heads, layers=config.num_layers)


class _MedusaCourse(Course[MedusaHeads]):
    command, weights = "train-medusa", OUR_FILE

    def __init__(self, options: Options, backbone: Backbone) -> None:
        self._options, self._backbone, self._is_soft = options, backbone, options.labels == "soft"
        self.measurements: list[HeadMeasurement] = []

    def new_heads(self, kinds: Sequence[Kind]) -> MedusaHeads:
        options = self._options
        if options.start is None:
            return first_heads(self._backbone, options.tokens_ahead, options.layers)
        try:
            return self._loaded(options.start, options.tokens_ahead).requires_grad_(True)
        except UnreadableError as error:
            raise UserError(f"--from: {error}") from None

    def teacher(self, heads: MedusaHeads) -> Callable[[RowBatch, float], torch.Tensor]:
        return teacher(self._backbone, heads, soft=self._is_soft)

    def rank(self, heads: MedusaHeads, rows: Sequence[TokenRow]) -> Ranks:
        return rank_rows(self._backbone, heads, rows, self._options.batch_tokens, soft=self._is_soft)

    def save(self, heads: MedusaHeads, out: Path, more: dict[str, Any]) -> None:
        config = {"base_model_name_or_path": self._options.model, **more}
        save_heads(heads, out, config, getattr(torch, self._options.dtype))

    def load(self, out: Path) -> MedusaHeads:
        return self._loaded(str(out))

    def _loaded(self, model: str, num_heads: int | None = None) -> MedusaHeads:
        one = self._backbone
        return load_heads(model, one.hidden_size, one.vocab_size, torch.float32, one.device, num_heads=num_heads)

    def measure(self, heads: MedusaHeads, kinds: Sequence[Kind], advance: Callable[[int], None]) -> dict[str, Any]:
        ranks = {}
        for done, kind in enumerate(kinds, 1):
            ranks[kind.name] = self.rank(heads, kind.held_out)
            advance(done)
        self.measurements = [measurement(name, found, is_own=name != DATA) for name, found in ranks.items()]
        # Of the kinds of text most like what will be served.
        served = {name: found for name, found in ranks.items() if name != DATA} or ranks
        at_0 = {kind.name for kind in kinds if any(row.temperature == 0 for row in kind.held_out)}
        greedy = {name: found for name, found in served.items() if name in at_0} or served
        sampled = {name: found for name, found in served.items() if name != DATA and name not in at_0}
        sampled = sampled or {name: found for name, found in ranks.items() if name == DATA} or served
        # Drafts are drawn on the target's own sampled text if there is any, else on the data, if there are any.
        held_out = [row for kind in kinds for row in kind.held_out]
        rows = [row for row in held_out if row.temperature] or [row for row in held_out if row.temperature is None]
        rows = rows or held_out
        options = self._options
        shares = drawn_shares(self._backbone, heads, some(rows, QUICK_TOKENS), options.batch_tokens, options.seed)
        drawn = drawn_paths(shares, MAX_PATHS)
        return for_config(self.measurements, served, greedy, sampled, drawn)

    def report(self, history: History | None, origin: dict[str, Any]) -> Report:
        title = f"{self._options.tokens_ahead} Medusa heads for {Path(self._options.model).name}"
        return report_of(self.command, title, self.measurements, history, origin)
