"""The heads against a plain implementation."""

import pytest
import torch

from tests.unit.proposers.medusa.folders import HIDDEN, VOCABULARY, plain_logits, random_state
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads


def heads_of(state: dict[str, torch.Tensor], num_heads: int, num_layers: int) -> MedusaHeads:
    heads = MedusaHeads(HIDDEN, VOCABULARY, num_heads, num_layers)
    with torch.no_grad():
        for head in range(num_heads):
            for layer in range(num_layers):
                heads.block_weights[layer][head] = state[f"{head}.{layer}.linear.weight"].T
                heads.block_biases[layer][head] = state[f"{head}.{layer}.linear.bias"]
            heads.projection[head] = state[f"{head}.{num_layers}.weight"].T
    return heads


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize(("num_heads", "num_layers"), [(1, 1), (3, 1), (2, 2), (2, 0)])
def test_all_heads_at_once_say_what_each_says_by_itself(num_heads: int, num_layers: int, rows: int) -> None:
    state = random_state(num_heads, num_layers)
    hidden = torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(1))
    found = heads_of(state, num_heads, num_layers)(hidden)
    assert found.shape == (num_heads, rows, VOCABULARY)
    torch.testing.assert_close(found, plain_logits(state, hidden, num_heads, num_layers))


def test_only_the_first_heads_run_when_fewer_are_asked_for() -> None:
    heads = heads_of(random_state(3, 2), 3, 2)
    hidden = torch.randn(4, HIDDEN, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(heads(hidden, 2), heads(hidden)[:2])


def test_sizes_are_those_it_was_made_with() -> None:
    heads = MedusaHeads(HIDDEN, VOCABULARY, 3, 2, dtype=torch.float16, device="cpu")
    assert (heads.hidden_size, heads.vocab_size, heads.num_heads, heads.num_layers) == (HIDDEN, VOCABULARY, 3, 2)
    assert {parameter.dtype for parameter in heads.parameters()} == {torch.float16}
    weights = sum(parameter.numel() for parameter in heads.parameters())
    assert weights == 3 * (2 * HIDDEN * (HIDDEN + 1) + VOCABULARY * HIDDEN)
