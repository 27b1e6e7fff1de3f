"""The configuration with a fixed draft length."""

from pathlib import Path

import pytest

from vllm_spec_plugin.config import load_config, parse_config
from vllm_spec_tools.certify.session import fixed_length, max_accepted_of

CONFIGS = Path(__file__).parents[4] / "configs"


@pytest.mark.parametrize(
    ("name", "tokens", "max_accepted"),
    [("ngram", 4, 4), ("draft_model", 4, 4), ("cascade", 4, 4), ("medusa_tree", 0, 0)],
)
def test_fixed_length_keeps_the_proposers_and_their_trees(name: str, tokens: int, max_accepted: int) -> None:
    config = load_config(CONFIGS / f"{name}.yaml")
    again = parse_config(fixed_length(config), name)
    assert again.draft_length.policy == "fixed"
    assert again.draft_length.tokens == (config.draft_length.tokens if config.drafts_trees else tokens)
    assert again.proposer == config.proposer
    # Of an automatic tree only the number of its tokens is known.
    assert max_accepted_of(again) == (max_accepted or config.draft_length.tokens)
