"""Tests the values of `--vllm`, and the memory that models take."""

import pytest

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.planner.candidates import NONE, Heads
from vllm_spec_tools.planner.models import TARGET, memory_of, read_natives


def test_configs_of_vllms_drafters() -> None:
    given = ['{"method": "ngram", "prompt_lookup_max": 5}', '{"method": "eagle3", "model": "org/head"}']
    assert read_natives(given) == (
        {"method": "ngram", "prompt_lookup_max": 5},
        {"method": "eagle3", "model": "org/head"},
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["eagle3"], "is not JSON"),
        (["[1]"], "has no method"),
        (['{"method": "ngram", "num_speculative_tokens": 4}'], "draft_length.tokens sets it"),
        (['{"method": "ngram"}', '{"method": "ngram"}'], "each method once"),
    ],
)
def test_what_plan_cannot_consider_is_refused(given: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_natives(given)


DTYPE = "torch.float32"


def test_each_candidate_has_its_share(heads: Heads) -> None:
    facts = {
        NONE: {"dtype": DTYPE, "kv_bytes_per_token": 4096},
        "suffix and draft_model": {"dtype": DTYPE, "kv_bytes_per_token": 4608},
        "grammar and suffix": {"dtype": DTYPE, "kv_bytes_per_token": 4096},
        "eagle3": {"dtype": DTYPE, "kv_bytes_per_token": 5120},
        "vllm eagle3": {"dtype": DTYPE, "kv_bytes_per_token": 5120},
        "vllm ngram": {"dtype": DTYPE, "kv_bytes_per_token": 4096},
        "vllm mtp": {"dtype": DTYPE, "kv_bytes_per_token": 6144},
    }
    draft, eagle3 = str(model_path("draft")), str(model_path("eagle3"))
    natives = ({"method": "eagle3", "model": eagle3}, {"method": "ngram"}, {"method": "mtp"})
    found = memory_of(str(model_path("target")), draft, heads, facts, eagle3, natives)
    assert {name: taken.kv_per_token for name, taken in found.items()} == {
        TARGET: 4096,
        "suffix": 0,
        "grammar": 0,
        "grammar and suffix": 0,
        "draft_model": 512,
        "cascade": 512,
        "medusa": 0,
        "medusa tree": 0,
        "eagle3": 1024,
        "vllm eagle3": 1024,
        "vllm ngram": 0,
        "vllm mtp": 2048,
    }
    assert [found[f"vllm {each}"].weights for each in ("eagle3", "ngram", "mtp")] == [found["eagle3"].weights, 0, None]
    assert found["draft_model"].weights == pytest.approx(4 * 0.9e6, rel=0.01)
    assert found["eagle3"].weights == pytest.approx(4 * 1.6e6, rel=0.1)
    assert found["suffix"].weights == 0
    del facts["grammar and suffix"]
    assert list(memory_of(str(model_path("target")), None, None, facts)) == [TARGET, "suffix"]


def test_predictions_and_their_cascade_with_suffixes_take_nothing() -> None:
    facts = {NONE: {"dtype": DTYPE, "kv_bytes_per_token": 4096}, "prediction and suffix": {}}
    found = memory_of(str(model_path("target")), None, None, facts)
    assert {name: taken.weights for name, taken in found.items() if name != TARGET} == {
        "suffix": 0,
        "prediction": 0,
        "cascade": 0,
    }
