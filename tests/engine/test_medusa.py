"""Medusa heads draft from the target's own state, in whatever layout they come."""

from pathlib import Path

import pytest
import torch

from tests.engine import texts
from tests.engine.arms import TIGHT, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.engine.test_draft_model import mixed_job
from tests.unit.proposers.medusa.folders import original_config, plain_logits, write

pytestmark = pytest.mark.engine

NUM_TOKENS = 48
# Heads whose two likeliest tokens are nearer may rank them either way.
TIE = 1e-3


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 24, 400)


State = dict[str, torch.Tensor]
NUM_HEADS, NUM_LAYERS = 3, 2


@pytest.fixture(scope="module")
def heads(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, State]:
    """A checkpoint as FasterDecoding/Medusa writes them, near the target's own projection; seed 0."""
    generator = torch.Generator().manual_seed(0)
    projection = reference.model.get_output_embeddings().weight.detach()
    vocab_size, hidden_size = projection.shape

    def noise(*shape: int, scale: float) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * scale

    state = {}
    for head in range(NUM_HEADS):
        for layer in range(NUM_LAYERS):
            state[f"{head}.{layer}.linear.weight"] = noise(hidden_size, hidden_size, scale=0.05)
            state[f"{head}.{layer}.linear.bias"] = noise(hidden_size, scale=0.05)
        state[f"{head}.{NUM_LAYERS}.weight"] = projection + noise(vocab_size, hidden_size, scale=0.01)
    folder = tmp_path_factory.mktemp("heads")
    write(folder, state, original_config(NUM_HEADS, NUM_LAYERS))
    return folder, state


def test_heads_in_the_original_layout_draft_what_plain_torch_drafts(
    arms: Arms, reference: Reference, prompts: list[Tokens], heads: tuple[Path, State]
) -> None:
    """Each recorded draft, of greedy requests among sampled ones, after chunks and preemption."""
    folder, state = heads
    config = folder / "plugin.yaml"
    config.write_text("proposer: {method: medusa, model: .}\ndraft_length: {policy: fixed, tokens: 3}\n")
    result = arms.run(Engine(config=str(config), **TIGHT), mixed_job(prompts, record_drafting=0.3))
    assert result.preemptions > 0
    assert not any(count for name, count in result.metrics.items() if "proposer_errors" in name)
    compared = 0
    for text, drafted in result.notes["drafting"]:
        # The state that the newest token was sampled from is that of the token before it.
        hidden = reference.last_hidden(text[:-1])
        logits = plain_logits(state, hidden[None], NUM_HEADS, NUM_LAYERS)[:, 0]
        for head, token in enumerate(drafted):
            top = logits[head].topk(2)
            if top.values[0] - top.values[1] > TIE:
                assert token == top.indices[0], f"head {head + 1} after {len(text)} tokens"
                compared += 1
    assert compared > 300


def test_a_tree_that_spans_blocks_and_goes_deep_changes_no_output(
    arms: Arms, reference: Reference, prompts: list[Tokens], heads: tuple[Path, State]
) -> None:
    """64 nodes, more than a block of 32 tokens has room for if they stood one after the other."""
    folder, _ = heads
    paths = [[a] for a in range(8)] + [[a, b] for a in range(4) for b in range(4)]
    paths += [[a, b, c] for a in range(4) for b in range(4) for c in range(3) if a + b + c < 6][:40]
    config = folder / "tree.yaml"
    config.write_text(
        f"proposer: {{method: medusa, model: ., tree: {paths}}}\ndraft_length: {{policy: fixed, tokens: 64}}\n"
    )
    job = greedy_job(prompts, NUM_TOKENS)
    result = arms.run(Engine(config=str(config), check=True), job)
    assert_same_tokens(reference, prompts, result, arms.run(Engine(), job))
    assert result.accepted > 50
