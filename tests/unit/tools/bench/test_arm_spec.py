"""What `--arm` may say."""

from pathlib import Path

import pytest

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.arm_spec import NONE, choose_arms, is_stock, stock_of


def names(*words: str) -> list[str]:
    return [choice.name for choice in choose_arms(words)]


def test_each_word_stands_for_one_or_more_arms_in_order() -> None:
    words = ("fixed:0,4", "stock:ngram", "optimal", "stock:draft_model:8")
    assert names(*words) == [
        NONE,
        "fixed K = 0",
        "fixed K = 4",
        "vLLM's ngram, K = 4",
        "optimal",
        "vLLM's draft_model, K = 8",
    ]


def test_vllms_own_arms_are_known_by_their_names() -> None:
    assert stock_of(names("optimal", "stock:ngram:2", "stock:draft_model")) == "vLLM's ngram, K = 2"
    assert stock_of(names("optimal")) is None
    assert not is_stock("stock.yaml")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "optimum",
            "--arm: got 'optimum', which is no file either; allowed: none, optimal, without:MECHANISM, fixed:K",
        ),
        ("fixed", "--arm: got 'fixed', which is no file either; allowed: none, optimal, without:MECHANISM, fixed:K"),
        ("without:luck", "--arm without:luck: got 'luck'; allowed: "),
        ("fixed:65", "--arm fixed:65: got '65'; allowed: whole numbers from 0 to 64, such as 1,2,4"),
        ("fixed:1,x", "--arm fixed:1,x: got '1,x'; allowed: whole numbers"),
        ("stock:medusa", "--arm stock:medusa: got 'medusa'; allowed: draft_model, eagle3, ngram, suffix"),
        ("stock:ngram:0", "--arm stock:ngram:0: got '0'; allowed: whole numbers from 1 to 32"),
    ],
)
def test_other_words_are_refused_with_what_is_allowed(
    word: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        names(word)
    assert str(refused.value).startswith(message)


def test_where_drafts_must_be_made_0_is_refused() -> None:
    with pytest.raises(UserError, match="allowed: whole numbers from 1 to 64"):
        choose_arms(["fixed:0"], min_fixed=1)
