"""Trains EAGLE-3 heads by training-time test (arXiv 2503.01840, section 3.2)."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.nn.functional import embedding

from vllm_spec_plugin.proposers.eagle3.checkpoint import read_head
from vllm_spec_plugin.proposers.eagle3.layout import NUM_AUX_LAYERS, HeadConfig, default_aux_layers, read_layout
from vllm_spec_plugin.proposers.model_files import WEIGHTS
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.training.backbone import Backbone, load_backbone
from vllm_spec_tools.training.eagle3_head import Eagle3Head
from vllm_spec_tools.training.loop import train
from vllm_spec_tools.training.objective import Lesson, Objective, Ranks
from vllm_spec_tools.training.options import Eagle3Options
from vllm_spec_tools.training.rows import Kind, RowBatch, TokenRow

DRAFT_VOCABULARY = 32_000  # as published heads have
RATE = 0.032  # 2e-3 at a hidden size of 256, 5e-4 at 4096


def train_head(
    options: Eagle3Options, out: Path, console: Console, *, restart: bool = False
) -> dict[str, dict[str, Any]]:
    """Trains a head, measures it on held-out text, and writes it in the speculators layout; see `loop.train`."""
    backbone = load_backbone(options.model)
    if options.learning_rate is None:
        options = replace(options, learning_rate=RATE / math.sqrt(backbone.hidden_size))
    data = new_config(backbone, options)
    options = replace(options, draft_vocab=data["draft_vocab_size"])
    return train(Eagle3Objective(options, backbone, data), out, console, restart)


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
        "eagle_aux_hidden_state_layer_ids": _aux_layers(target.num_hidden_layers),
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


def _aux_layers(num_layers: int) -> list[int]:
    """Returns vLLM's default layers, or the last ones of a model with few layers."""
    if num_layers < NUM_AUX_LAYERS:
        raise UserError(f"--model: got {num_layers} layers; allowed: a model with at least {NUM_AUX_LAYERS}")
    layers = default_aux_layers(num_layers)
    # vLLM takes the number of a head's layers from its tensors' default.
    is_short = len(layers) < NUM_AUX_LAYERS or layers[-1] >= num_layers
    return list(range(num_layers))[-NUM_AUX_LAYERS:] if is_short else list(layers)


def _rope(target: Any) -> dict[str, Any]:
    """Returns the target's rotary embedding if all its layers have one, else the default one."""
    given = getattr(target, "rope_parameters", None) or {}
    return dict(given) if "rope_type" in given else {"rope_type": "default", "rope_theta": 10000.0}


class Eagle3Objective(Objective[Eagle3Head]):
    """Step s of the chain from position b predicts the token b + s + 2, given the text's tokens, not its own.

    Where all its tokens before were right they are the same. Labels of greedy text are distributions at temperature 1,
    which have the same best token and teach more. The loss is the cross entropy, which teaches faster, in the first
    quarter of training, and the rejection rate itself in the last.
    """

    weights, unit = WEIGHTS, "draft token"
    step_decay, largest_gradient = 0.8, 1.0
    options: Eagle3Options

    def __init__(self, options: Eagle3Options, backbone: Backbone, data: dict[str, Any]) -> None:
        """Takes the config.json of the head as `data`."""
        super().__init__(options, backbone)
        self._data, self._target_ids = data, torch.zeros(0, dtype=torch.int64)

    def start(self, kinds: Sequence[Kind]) -> None:
        # The head predicts the most frequent tokens of the text.
        config, rows = read_layout(self._data, "config.json"), [row for kind in kinds for row in kind.train]
        self._target_ids = frequent_tokens(rows, config.draft_vocab_size, config.vocab_size).to(self.backbone.device)
        self.heads = new_head(self.backbone, config, self._target_ids, self.options.seed)

    def lesson(self, batch: RowBatch) -> tuple[Lesson, Iterator[torch.Tensor]]:
        assert self.heads.config.aux_layers is not None
        states, logits = self.backbone.read(batch.tokens, self.heads.config.aux_layers)
        lesson = Lesson(self.backbone, batch, self.options.draft_tokens, logits, self._target_ids, scales=True)
        return lesson, self._outputs(lesson, batch, states)

    def _outputs(self, lesson: Lesson, batch: RowBatch, states: torch.Tensor) -> Iterator[torch.Tensor]:
        length = states.shape[1]
        # No chain starts at the last positions.
        chains = max(length - 1 - lesson.num_steps, 0)
        rows, columns = lesson.positions // length, lesson.positions % length
        embeddings = embedding(batch.tokens.to(states.device), self.backbone.embedding).float()
        features = self.heads.combine(states[:, :chains])
        for output in self.heads.unroll(embeddings[:, 1:], features, lesson.num_steps):
            yield output[rows, columns]

    def guess(self, states: torch.Tensor, step: int) -> torch.Tensor:
        guesses: torch.Tensor = self.heads.lm_head(states)
        return guesses

    def rejection(self, done: float) -> float:
        return min(1.0, max(0.0, 2 * done - 0.5))

    def learn(self, batch: RowBatch, done: float) -> torch.Tensor:
        # Matrix products are in bfloat16 where the device has them.
        device = self.backbone.device.type
        is_fast = device != "cpu" or torch.cpu._is_avx512_bf16_supported()
        with torch.autocast(device, torch.bfloat16, enabled=is_fast):
            return super().learn(batch, done)

    def save(self, out: Path, more: dict[str, Any]) -> None:
        # The target's embedding is not written: vLLM uses the target's.
        from safetensors.torch import save

        config, dtype = self.heads.config, getattr(torch, self.options.dtype)
        tensors = {name: one.detach().to("cpu", dtype).contiguous() for name, one in self.heads.state_dict().items()}
        if config.draft_vocab_size != config.vocab_size:
            ids = self._target_ids.cpu()
            tensors["d2t"] = ids - torch.arange(len(ids))
            tensors["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool)
            tensors["t2d"][ids] = True
        out.mkdir(parents=True, exist_ok=True)
        # safetensors itself would make a file that only its owner can read.
        (out / WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))
        text = json.dumps(self._data | more, indent=2, ensure_ascii=False)
        (out / "config.json").write_text(text + "\n", "utf-8")

    def load(self, out: Path) -> None:
        self.heads = Eagle3Head.load(read_head(str(out))).to(self.backbone.device).requires_grad_(False)

    def figures(self, ranks: dict[str, Ranks], kinds: Sequence[Kind], held_out: dict[str, Any]) -> dict[str, Any]:
        more = {
            name: {
                "acceptance_by_position": [round(share, 4) for share in acceptance_by_position(found)],
                "overlap": [round(share, 4) for share in found.overlap],
            }
            for name, found in ranks.items()
        }
        return {"held_out": {name: found | more[name] for name, found in held_out.items()}}


def acceptance_by_position(ranks: Ranks) -> list[float]:
    """Returns of each step how often its best token is right where all before it were; 0 where they never were."""
    right = (ranks.together[1:] == 0).long().cumprod(0).sum(1).tolist()
    before = [ranks.together.shape[1], *right]
    return [hit / count if count else 0.0 for hit, count in zip(right, before, strict=False)]
