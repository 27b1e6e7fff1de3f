"""Trains Medusa heads, and measures how often paths of their drafts are right."""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.nn.functional import silu

from vllm_spec_plugin.proposers.draft_tokens import draw_siblings
from vllm_spec_plugin.proposers.medusa.checkpoint import (
    DRAWN,
    GREEDY,
    NUM_RANKS,
    SAMPLED,
    load_heads,
    read_heads_config,
    save_heads,
)
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_plugin.proposers.medusa.tensor_file import OUR_FILE
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.training.backbone import Backbone, load_backbone
from vllm_spec_tools.training.loop import train
from vllm_spec_tools.training.objective import Lesson, Objective, Ranks
from vllm_spec_tools.training.options import Options
from vllm_spec_tools.training.report import accuracy
from vllm_spec_tools.training.rows import DATA, Kind, RowBatch, TokenRow, batches_once

HEADS = 4
RATE = 0.064  # 1e-3 at a hidden size of 4096, 4e-3 at 256: wider layers move more for the same rate
MAX_PATHS = 256
NUM_DRAWN = 6
"""Maximum number of siblings sampled per position in a measurement."""
_POSITIONS = 64  # at once: NUM_DRAWN distributions of each
_DRAWN_TOKENS = 8192  # of the text that siblings are sampled on


def train_heads(options: Options, out: Path, console: Console, *, restart: bool = False) -> dict[str, dict[str, Any]]:
    """Trains heads, measures them on held-out text, and writes them in this project's layout; see `loop.train`."""
    options = _settle(options)
    backbone = load_backbone(options.model)
    if options.learning_rate is None:
        options = replace(options, learning_rate=RATE / math.sqrt(backbone.hidden_size))
    # Heads that were only measured keep their history.
    earlier = read_heads_config(options.start).provenance if options.start and not options.steps else None
    return train(MedusaObjective(options, backbone), out, console, restart, {"of": earlier} if earlier else {})


def _settle(options: Options) -> Options:
    if options.start is None:
        return replace(options, heads=options.heads or HEADS)
    try:
        config = read_heads_config(options.start)
    except UnreadableError as error:
        raise UserError(f"--from: {error}") from None
    if (options.heads or 0) > config.num_heads:
        most = config.num_heads
        given = f"got {options.heads}, and {options.start} has {most}"
        raise UserError(f"--heads: {given}; allowed: up to {most} with --from")
    return replace(options, heads=options.heads or config.num_heads)


def first_heads(backbone: Backbone, num_heads: int) -> MedusaHeads:
    """Heads that all say what the target itself says next (Cai et al., section 2.2.1).

    Their one residual block adds nothing and the projection is the target's output layer.
    """
    heads = MedusaHeads(backbone.hidden_size, backbone.vocab_size, num_heads, 1, torch.float32, backbone.device)
    with torch.no_grad():
        heads.projection.copy_(backbone.output_layer.weight.float().T)
    return heads


class MedusaObjective(Objective[MedusaHeads]):
    """Head k at position t predicts the token t + 2 + k, k from 0, by the target's last hidden state at t.

    Labels of greedy text are its tokens, as the target's distribution at temperature 0 has nothing else.
    """

    weights, unit = OUR_FILE, "head"
    options: Options

    def start(self, kinds: Sequence[Kind]) -> None:
        options = self.options
        if options.start is None:
            self.heads = first_heads(self.backbone, options.tokens_ahead)
            return
        try:
            self.heads = self._loaded(options.start).requires_grad_(True)
        except UnreadableError as error:
            raise UserError(f"--from: {error}") from None

    def lesson(self, batch: RowBatch) -> tuple[Lesson, Iterator[torch.Tensor]]:
        states, logits = self.backbone.read(batch.tokens)
        lesson = Lesson(self.backbone, batch, self.options.tokens_ahead, logits, is_hard=batch.temperature == 0)
        given = states.flatten(0, 1).float()[lesson.positions]
        outputs = given.expand(self.heads.num_heads, *given.shape)
        for weight, bias in zip(self.heads.block_weights, self.heads.block_biases, strict=True):
            outputs = outputs + silu(torch.baddbmm(bias, outputs, weight))
        return lesson, iter(outputs)

    def guess(self, states: torch.Tensor, step: int) -> torch.Tensor:
        return states @ self.heads.projection[step]

    def save(self, out: Path, more: dict[str, Any]) -> None:
        config = {"base_model_name_or_path": self.options.model, **more}
        save_heads(self.heads, out, config, getattr(torch, self.options.dtype))

    def load(self, out: Path) -> None:
        self.heads = self._loaded(str(out))

    def _loaded(self, model: str) -> MedusaHeads:
        one = self.backbone
        sizes = one.hidden_size, one.vocab_size
        return load_heads(model, *sizes, torch.float32, one.device, num_heads=self.options.tokens_ahead)

    def figures(self, ranks: dict[str, Ranks], kinds: Sequence[Kind], held_out: dict[str, Any]) -> dict[str, Any]:
        # Of the kinds of text most like what will be served.
        served = {name: found for name, found in ranks.items() if name != DATA} or ranks
        at_0 = {kind.name for kind in kinds if any(row.temperature == 0 for row in kind.held_out)}
        greedy = {name: found for name, found in served.items() if name in at_0} or served
        sampled = {name: found for name, found in served.items() if name != DATA and name not in at_0}
        sampled = sampled or {name: found for name, found in ranks.items() if name == DATA} or served
        # Drafts are drawn on the target's own sampled text if there is any, else on the data, if there are any.
        rows = [row for kind in kinds for row in kind.held_out]
        drawn = [row for row in rows if row.temperature] or [row for row in rows if row.temperature is None] or rows
        paths = {
            GREEDY: likeliest_paths(_of_heads(greedy)),
            SAMPLED: likeliest_paths(_of_heads(sampled)),
            DRAWN: drawn_paths(self.drawn_shares(_first(drawn, _DRAWN_TOKENS)), MAX_PATHS),
        }
        heads = _of_heads(served)
        return {
            "measured_on": f"held out: {' and '.join(served)}, {heads.shape[1]} positions",
            "accuracy": [[round(share, 5) for share in head] for head in accuracy(heads)],
            "held_out": held_out,
            "paths": {use: [[path, round(share, 6)] for path, share in found] for use, found in paths.items()},
        }

    @torch.no_grad()
    def drawn_shares(self, rows: Sequence[TokenRow]) -> torch.Tensor:
        """[heads, positions, NUM_DRAWN]: `accepted_shares` of drafts drawn at the text's temperature, or at 1."""
        generator = torch.Generator().manual_seed(self.options.seed)
        shares = [torch.zeros(self.heads.num_heads, 0, NUM_DRAWN)]
        for batch in batches_once(rows, self.options.batch_tokens):
            lesson, outputs = self.lesson(batch)
            of_heads = list(outputs)
            for start in range(0, len(lesson.positions), _POSITIONS):
                chunk, found = slice(start, start + _POSITIONS), []
                for head, states in enumerate(of_heads):
                    guess = self.guess(states[chunk], head) / lesson.temperature
                    uniforms = torch.rand(len(guess), NUM_DRAWN, generator=generator, dtype=torch.float64)
                    tokens, probs = draw_siblings(guess, uniforms.to(guess.device))
                    found.append(accepted_shares(lesson.probs(chunk, head), tokens, probs).cpu())
                shares.append(torch.stack(found))
        return torch.cat(shares, 1)


def _first(rows: Sequence[TokenRow], num_tokens: int) -> list[TokenRow]:
    """Returns the first rows with `num_tokens` tokens in all, the last of them whole."""
    ends = accumulate(len(row.tokens) for row in rows)
    return [row for row, end in zip(rows, ends, strict=True) if end - len(row.tokens) < num_tokens]


def _of_heads(ranks: dict[str, Ranks]) -> torch.Tensor:
    return torch.cat([found.together[1:] for found in ranks.values()], 1)


def likeliest_paths(ranks: torch.Tensor) -> list[tuple[list[int], float]]:
    """Probabilities that the first heads' right tokens have exactly these ranks, for the likeliest paths.

    Args:
        ranks: [num_heads, positions], heads only.

    Returns:
        Likeliest first, every prefix of a path before it.
    """
    counts: Counter[tuple[int, ...]] = Counter()
    for position in zip(*ranks.tolist(), strict=True):
        for depth in range(1, 1 + len(position)):
            if position[depth - 1] >= NUM_RANKS:
                break
            counts[position[:depth]] += 1
    order = sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
    return [(list(path), count / ranks.shape[1]) for path, count in order[:MAX_PATHS]]


def accepted_shares(p: torch.Tensor, tokens: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """[n, k]: probability that each of k siblings is the one accepted, as verification tries them in turn.

    Args:
        p: [n, vocab_size], the target's distributions.
        tokens: [n, k] int64, the siblings.
        probs: [n, k, vocab_size], what each was drawn from given those before it.
    """
    left, mass, tried = p.clone(), torch.ones_like(p[:, :1]), torch.ones_like(p[:, :1])
    shares = []
    for rank in range(tokens.shape[1]):
        token, q = tokens[:, rank, None], probs[:, rank]
        kept = (left.gather(1, token) / (mass * q.gather(1, token)).clamp_min(1e-30)).clamp_max(1)
        shares.append(tried * kept)
        tried = tried * (1 - kept)
        left = (left - mass * q).clamp_min_(0)
        mass = left.sum(1, keepdim=True)
    return torch.cat(shares, 1)


def drawn_paths(shares: torch.Tensor, max_paths: int) -> list[tuple[list[int], float]]:
    """Probabilities that paths of drawn siblings are accepted, for the likeliest paths.

    Heads draw independently of each other given the position, so at each position a path's probability is the
    product of its positions' shares; the mean over positions keeps that easy positions are easy for all heads.

    Args:
        shares: [num_heads, positions, siblings].

    Returns:
        Likeliest first, every prefix of a path before it.
    """
    found: list[tuple[list[int], float]] = []
    waiting: list[tuple[float, tuple[int, ...]]] = []
    along: dict[tuple[int, ...], torch.Tensor] = {(): torch.ones(shares.shape[1])}

    def offer(path: tuple[int, ...]) -> None:
        if len(path) < len(shares) and shares.shape[1]:
            products = along[path][:, None] * shares[len(path)]
            for rank, probability in enumerate(products.mean(0).tolist()):
                if probability > 0:
                    along[*path, rank] = products[:, rank]
                    heapq.heappush(waiting, (-probability, (*path, rank)))

    offer(())
    while waiting and len(found) < max_paths:
        negative, path = heapq.heappop(waiting)
        found.append((list(path), -negative))
        offer(path)
        del along[path]
    return found
