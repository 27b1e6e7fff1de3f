"""What `--vllm` may say."""

import pytest

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.planner.models import read_natives


def test_configs_of_vllms_drafters() -> None:
    given = ['{"method": "ngram", "prompt_lookup_max": 5}', '{"method": "eagle3", "model": "org/head"}']
    assert read_natives(given) == (
        {"method": "ngram", "prompt_lookup_max": 5},
        {"method": "eagle3", "model": "org/head"},
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["eagle3"], "is no JSON"),
        (["[1]"], "has no method"),
        (['{"method": "ngram", "num_speculative_tokens": 4}'], "draft_length.tokens has it"),
        (['{"method": "ngram"}', '{"method": "ngram"}'], "each method once"),
    ],
)
def test_what_plan_cannot_consider_is_refused(given: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_natives(given)
