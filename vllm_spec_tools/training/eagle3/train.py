"""A training run from its options to a folder with an EAGLE-3 head."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vllm_spec_plugin.proposers.eagle3.checkpoint import WEIGHTS, read_head
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.progress import Tasks
from vllm_spec_tools.report import Files, write
from vllm_spec_tools.training.backbone import Backbone, load_backbone
from vllm_spec_tools.training.data import read_data
from vllm_spec_tools.training.distill import OwnText
from vllm_spec_tools.training.eagle3.files import save_head
from vllm_spec_tools.training.eagle3.measurement import acceptance_by_position, rank_chains
from vllm_spec_tools.training.eagle3.objective import teacher
from vllm_spec_tools.training.eagle3.options import Eagle3Options
from vllm_spec_tools.training.eagle3.reference import Eagle3Head
from vllm_spec_tools.training.eagle3.start import frequent_tokens, new_config, new_head
from vllm_spec_tools.training.kinds import DATA, Kind, data_kind, own_kinds
from vllm_spec_tools.training.loop import Training
from vllm_spec_tools.training.report import Measurement, held_out, measurement, report_of
from vllm_spec_tools.training.resume import Checkpoint
from vllm_spec_tools.training.stages import origin_of, train_to_end

RATE = 0.032  # 2e-3 at a hidden size of 256, 5e-4 at 4096
UNIT = "draft token"


def train_head(
    options: Eagle3Options, out: Path, console: Console, *, restart: bool = False, files: Files | None = None
) -> dict[str, dict[str, Any]]:
    """Trains a head, measures it on held-out text, and writes it in the speculators layout.

    Args:
        out: gets config.json, the weights and training.png; on the way, `checkpoint`.
        files: further files for the report; its picture is training.png unless one is named.

    Returns:
        The section `held_out` of config.json: figures by kind of text.

    Raises:
        UserError: one message that names the option.
        KeyboardInterrupt: after a checkpoint was written.
    """
    begin = time.time()
    backbone = load_backbone(options.model)
    if options.learning_rate is None:
        options = replace(options, learning_rate=RATE / math.sqrt(backbone.hidden_size))
    _check(options, backbone)
    config = new_config(backbone, options)
    options = replace(options, draft_vocab=config.draft_vocab_size, aux_layers=config.aux_layers)
    data = read_data(options.data, backbone.render)
    checkpoint = Checkpoint(out, WEIGHTS)
    checkpoint.begin(options.arguments() | {"sha256 of the data": data.sha256}, restart=restart)
    with Tasks(console) as tasks:
        kinds = [data_kind(backbone, data, options, tasks)]
        own = OwnText(backbone, checkpoint.folder / "own-text.jsonl", options.max_length, options.seed)
        kinds += own_kinds(backbone, own, data, options, tasks)
        rows = [row for kind in kinds for row in kind.train]
        target_ids = frequent_tokens(rows, config.draft_vocab_size, config.vocab_size).to(backbone.device)
        head = new_head(backbone, config, target_ids, options.seed)
        learn = teacher(backbone, head, target_ids, options.draft_tokens)
        training = Training(head, learn, [kind.train for kind in kinds], options)
        seconds = train_to_end(
            training,
            lambda rows: rank_chains(
                backbone, training.heads, target_ids, rows, options.batch_tokens, options.draft_tokens
            )[0],
            kinds,
            options,
            checkpoint,
            tasks,
            begin,
            own.seconds_before,
        )
        dtype = getattr(torch, options.dtype)
        # Measured as it will be loaded, with the rounding of the file.
        save_head(head, target_ids, out, dtype, options.draft_tokens, {})
        head = Eagle3Head.load(read_head(str(out))).to(backbone.device).requires_grad_(False)
        measurements, figures = _measure_all(backbone, head, target_ids, kinds, options)
    origin = origin_of("train-eagle3", options, data, kinds, seconds + time.time() - begin, backbone)
    save_head(head, target_ids, out, dtype, options.draft_tokens, {"held_out": figures, "provenance": origin})
    title = f"An EAGLE-3 head for {Path(options.model).name}"
    accepted = [f"Accepted by position, {name}: {_shares(found)}." for name, found in figures.items()]
    report = report_of("train-eagle3", title, measurements, training.history, origin, unit=UNIT, conclusions=accepted)
    checkpoint.remove()
    files = files or Files()
    write(report, terminal=console, **vars(replace(files, png=files.png or out / "training.png")))
    return figures


def _shares(found: dict[str, Any]) -> str:
    return ", ".join(f"{share:.1%}" for share in found["acceptance_by_position"])


def _check(options: Eagle3Options, backbone: Backbone) -> None:
    shortest = options.draft_tokens + 2
    most = backbone.context or math.inf
    if not shortest <= options.max_length <= most:
        raise UserError(
            f"--max-length: got {options.max_length}; allowed: from {shortest}, for {options.draft_tokens} draft tokens"
            + (f", to {backbone.context}, which is all that {options.model} reads" if backbone.context else "")
        )


def _measure_all(
    backbone: Backbone, head: Eagle3Head, target_ids: torch.Tensor, kinds: Sequence[Kind], options: Eagle3Options
) -> tuple[list[Measurement], dict[str, dict[str, Any]]]:
    measurements, more = [], {}
    for kind in kinds:
        ranks, overlaps = rank_chains(
            backbone, head, target_ids, kind.held_out, options.batch_tokens, options.draft_tokens
        )
        measurements.append(measurement(kind.name, ranks, is_own=kind.name != DATA))
        more[kind.name] = {
            "acceptance_by_position": [round(share, 4) for share in acceptance_by_position(ranks)],
            "overlap": [round(share, 4) for share in overlaps],
        }
    return measurements, {name: figures | more[name] for name, figures in held_out(measurements).items()}
