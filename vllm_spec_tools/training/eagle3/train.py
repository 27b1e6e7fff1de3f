"""A training run from its options to a folder with an EAGLE-3 head."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vllm_spec_plugin.proposers.eagle3.checkpoint import read_head
from vllm_spec_plugin.proposers.eagle3.layout import NUM_AUX_LAYERS, HeadConfig, default_aux_layers, read_layout
from vllm_spec_plugin.proposers.model_files import WEIGHTS
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.report import Files, Report
from vllm_spec_tools.training.backbone import Backbone, load_backbone
from vllm_spec_tools.training.eagle3.objective import acceptance_by_position, rank_chains, teacher
from vllm_spec_tools.training.eagle3.reference import Eagle3Head
from vllm_spec_tools.training.loop import Course, History, check_max_length, train
from vllm_spec_tools.training.measurement import Ranks
from vllm_spec_tools.training.options import Eagle3Options
from vllm_spec_tools.training.report import HeadMeasurement, held_out, measurement, report_of
from vllm_spec_tools.training.rows import DATA, Kind, RowBatch, TokenRow

DRAFT_VOCABULARY = 32_000  # as published heads have


def frequent_tokens(rows: Iterable[TokenRow], count: int, vocab_size: int) -> torch.Tensor:
    """Returns the most frequent tokens of texts, [count] int64, ascending; of equally frequent ones the lowest."""
    counts: Counter[int] = Counter()
    for row in rows:
        counts.update(row.tokens.tolist())
    order = sorted(range(vocab_size), key=lambda token: (-counts[token], token))
    return torch.tensor(sorted(order[:count]), dtype=torch.int64)


def new_config(backbone: Backbone, options: Eagle3Options) -> dict[str, Any]:
    """Returns the config.json of a head with one layer of the target's sizes, in the speculators layout.

    Raises:
        UserError: an option does not fit the target.
    """
    target = backbone.model.config.get_text_config()
    heads = target.num_attention_heads
    layer: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": backbone.hidden_size,
        "intermediate_size": target.intermediate_size,
        "num_attention_heads": heads,
        "num_key_value_heads": getattr(target, "num_key_value_heads", None) or heads,
        "head_dim": getattr(target, "head_dim", None) or backbone.hidden_size // heads,
        "num_hidden_layers": 1,
        "vocab_size": backbone.vocab_size,
        "hidden_act": "silu",
        "max_position_embeddings": backbone.context or 2048,
        "rms_norm_eps": getattr(target, "rms_norm_eps", 1e-6),
        "rope_parameters": _rope(target),
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }
    count = min(backbone.vocab_size, DRAFT_VOCABULARY) if options.draft_vocab is None else options.draft_vocab
    if count > backbone.vocab_size:
        raise UserError(f"--draft-vocab: got {count}; allowed: up to {backbone.vocab_size}, the model's vocabulary")
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            # What vLLM's own method drafts by default.
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": options.draft_tokens}],
            "verifier": {"name_or_path": options.model},
        },
        "draft_vocab_size": count,
        "target_hidden_size": backbone.hidden_size,
        "eagle_aux_hidden_state_layer_ids": list(_aux_layers(options.aux_layers, target.num_hidden_layers)),
        "norm_before_residual": True,
        "transformer_layer_config": layer,
    }


def new_head(backbone: Backbone, config: HeadConfig, target_ids: torch.Tensor, seed: int) -> Eagle3Head:
    """Creates a random head with the target's output layer, which training changes."""
    torch.manual_seed(seed)
    head = Eagle3Head(config)
    with torch.no_grad():
        head.lm_head.weight.copy_(backbone.output_layer.weight[target_ids.to(backbone.device)].float())
    return head.to(backbone.device)


def _aux_layers(given: tuple[int, ...] | None, num_layers: int) -> tuple[int, ...]:
    if given is None:
        layers = default_aux_layers(num_layers)
        if len(layers) < NUM_AUX_LAYERS or layers[-1] >= num_layers:
            layers = tuple(range(num_layers))[-NUM_AUX_LAYERS:]
        given = layers
    # vLLM takes the number of a head's layers from its tensors' default.
    if len(given) != NUM_AUX_LAYERS or sorted(set(given)) != list(given) or not 0 <= given[0] <= given[-1] < num_layers:
        shown = " ".join(map(str, given))
        raise UserError(
            f"--aux-layers: got {shown}; allowed: {NUM_AUX_LAYERS} layers from 0 to {num_layers - 1} in ascending "
            f"order, of a model with at least {NUM_AUX_LAYERS} layers"
        )
    return given


def _rope(target: Any) -> dict[str, Any]:
    """Returns the target's rotary embedding if all its layers have one, else the default one."""
    given = getattr(target, "rope_parameters", None) or {}
    return dict(given) if "rope_type" in given else {"rope_type": "default", "rope_theta": 10000.0}


def save_head(
    head: Eagle3Head, target_ids: torch.Tensor, folder: Path, dtype: torch.dtype, data: Mapping[str, Any]
) -> None:
    """Writes the weights, and config.json with `data`.

    The target's embedding is not among them: vLLM uses the target's.

    Args:
        target_ids: [draft_vocab_size] int64, the target's token of each of the head's, ascending.
    """
    from safetensors.torch import save

    config = head.config
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in head.state_dict().items()}
    if config.draft_vocab_size != config.vocab_size:
        ids = target_ids.cpu()
        tensors["d2t"] = ids - torch.arange(len(ids))
        tensors["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool)
        tensors["t2d"][ids] = True
    folder.mkdir(parents=True, exist_ok=True)
    # safetensors itself would make a file that only its owner can read.
    (folder / WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))
    (folder / "config.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", "utf-8")


RATE = 0.032  # 2e-3 at a hidden size of 256, 5e-4 at 4096


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
    backbone = load_backbone(options.model)
    if options.learning_rate is None:
        options = replace(options, learning_rate=RATE / math.sqrt(backbone.hidden_size))
    check_max_length(options, backbone)
    data = new_config(backbone, options)
    config = read_layout(data, "config.json")
    options = replace(options, draft_vocab=config.draft_vocab_size, aux_layers=config.aux_layers)  # type: ignore[arg-type]
    course = _Eagle3Course(options, backbone, data)
    train(course, options, backbone, out, console, restart, files)
    return course.figures


class _Eagle3Course(Course[Eagle3Head]):
    command, weights = "train-eagle3", WEIGHTS

    def __init__(self, options: Eagle3Options, backbone: Backbone, data: dict[str, Any]) -> None:
        self._options, self._backbone, self._data = options, backbone, data
        self._target_ids = torch.zeros(0, dtype=torch.int64)
        self._measurements: list[HeadMeasurement] = []
        self.figures: dict[str, dict[str, Any]] = {}

    def new_heads(self, kinds: Sequence[Kind]) -> Eagle3Head:
        config, rows = read_layout(self._data, "config.json"), [row for kind in kinds for row in kind.train]
        self._target_ids = frequent_tokens(rows, config.draft_vocab_size, config.vocab_size).to(self._backbone.device)
        return new_head(self._backbone, config, self._target_ids, self._options.seed)

    def teacher(self, heads: Eagle3Head) -> Callable[[RowBatch, float], torch.Tensor]:
        return teacher(self._backbone, heads, self._target_ids, self._options.draft_tokens)

    def rank(self, heads: Eagle3Head, rows: Sequence[TokenRow]) -> Ranks:
        return self._chains(heads, rows)[0]

    def _chains(self, head: Eagle3Head, rows: Sequence[TokenRow]) -> tuple[Ranks, list[float]]:
        options = self._options
        return rank_chains(self._backbone, head, self._target_ids, rows, options.batch_tokens, options.draft_tokens)

    def save(self, heads: Eagle3Head, out: Path, more: dict[str, Any]) -> None:
        save_head(heads, self._target_ids, out, getattr(torch, self._options.dtype), self._data | more)

    def load(self, out: Path) -> Eagle3Head:
        return Eagle3Head.load(read_head(str(out))).to(self._backbone.device).requires_grad_(False)

    def measure(self, heads: Eagle3Head, kinds: Sequence[Kind], advance: Callable[[int], None]) -> dict[str, Any]:
        more = {}
        for done, kind in enumerate(kinds, 1):
            ranks, overlaps = self._chains(heads, kind.held_out)
            self._measurements.append(measurement(kind.name, ranks, is_own=kind.name != DATA))
            more[kind.name] = {
                "acceptance_by_position": [round(share, 4) for share in acceptance_by_position(ranks)],
                "overlap": [round(share, 4) for share in overlaps],
            }
            advance(done)
        self.figures = {name: found | more[name] for name, found in held_out(self._measurements).items()}
        return {"held_out": self.figures}

    def report(self, history: History | None, origin: dict[str, Any]) -> Report:
        title = f"An EAGLE-3 head for {Path(self._options.model).name}"
        accepted = [
            f"Accepted by position, {name}: {', '.join(f'{share:.1%}' for share in found['acceptance_by_position'])}."
            for name, found in self.figures.items()
        ]
        measured = self._measurements
        return report_of(self.command, title, measured, history, origin, unit="draft token", conclusions=accepted)
