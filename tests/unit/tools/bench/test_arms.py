"""Tests the values of `--arm`, the engines that the arms need, and when these start."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vllm_spec_plugin.config import ConfigError, PluginConfig, load_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench import arms as running
from vllm_spec_tools.bench import engine_args
from vllm_spec_tools.bench.arms import NONE, PlannedArm, base_of, engines, plan_arms
from vllm_spec_tools.bench.engine_args import ArmPlan
from vllm_spec_tools.engines.memory import OVERHEAD, weight_bytes

NGRAM = "proposer:\n  method: ngram\n  min_order: 7\ndraft_length:\n  policy: heuristic\n  tokens: 3\n"
WORDS = ("fixed:1,4", "optimal")


def planned(folder: Path, *words: str, proposer: str | None = None, draft: str | None = None) -> dict[str, PlannedArm]:
    path = None
    if proposer is not None:
        path = folder / "own.yaml"
        path.write_text(proposer)
    return plan_arms(words, base_of(path, draft), folder)


def config_of(arm: PlannedArm) -> PluginConfig:
    assert isinstance(arm.plan.speculative_config, str)
    return load_config(arm.plan.speculative_config)


@pytest.mark.parametrize("draft", [None, "some/draft"])
def test_without_a_proposer_the_draft_model_drafts(tmp_path: Path, draft: str | None) -> None:
    arms = planned(tmp_path, *WORDS, "stock:draft_model", "stock:ngram:5", draft=draft)
    proposer = config_of(arms["optimal"]).proposer
    assert proposer.method == "draft_model"
    assert (proposer.model, proposer.draft_sampling) == (draft or str(model_path("draft")), "greedy")
    settings = arms["vLLM's draft_model, K = 4"].plan.speculative_config
    assert isinstance(settings, dict)
    assert settings["model"] == proposer.model
    # As many tokens must match as for ours.
    assert arms["vLLM's ngram, K = 5"].plan.speculative_config == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    }


def test_only_the_draft_length_of_a_given_file_is_replaced(tmp_path: Path) -> None:
    arms = planned(tmp_path, *WORDS, proposer=NGRAM + "verification:\n  lenience: 0.9\n")
    for name, policy, tokens in (("fixed K = 4", "fixed", 4), ("optimal", "optimal", 8)):
        config = config_of(arms[name])
        assert config.proposer.method == "ngram"
        assert (config.proposer.min_order, config.verification.lenience) == (7, 0.9)
        assert (config.draft_length.policy, config.draft_length.tokens) == (policy, tokens)


@pytest.mark.parametrize("draft", [None, "some/weights"])
@pytest.mark.parametrize(("own", "other"), [("draft_model", "eagle3"), ("eagle3", "draft_model")])
def test_stock_takes_the_weights_that_were_named_the_proposers_or_the_bundled_ones(
    tmp_path: Path, draft: str | None, own: str, other: str
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own.yaml").write_text(f"proposer: {{method: {own}, model: own}}\n")
    # Files are written elsewhere, where a relative path would mean something else.
    folder = tmp_path / "temporary"
    folder.mkdir()
    choices = ["fixed:2", f"stock:{own}:5", f"stock:{other}"]
    arms = plan_arms(choices, base_of(tmp_path / "own.yaml", draft), folder)
    [proposer] = config_of(arms["fixed K = 2"]).proposers
    assert (proposer.method, *proposer.models) == (own, str(tmp_path / "own"))
    settings = {"method": own, "model": draft or str(tmp_path / "own"), "num_speculative_tokens": 5}
    assert arms[f"vLLM's {own}, K = 5"].plan.speculative_config == settings
    bundled = str(model_path("eagle3" if other == "eagle3" else "draft"))
    settings = {"method": other, "model": draft or bundled, "num_speculative_tokens": 4}
    assert arms[f"vLLM's {other}, K = 4"].plan.speculative_config == settings


def test_fixed_arms_share_an_engine_of_the_longest_draft(tmp_path: Path) -> None:
    arms = planned(tmp_path, "fixed:1,4,2", "optimal")
    assert [arms[name].spec_tokens for name in ("fixed K = 1", "fixed K = 4", "fixed K = 2", "optimal")] == [
        1,
        4,
        2,
        None,
    ]
    assert engines({name: arm.plan for name, arm in arms.items()}) == {
        NONE: [NONE],
        "fixed K = 1, fixed K = 4, fixed K = 2": ["fixed K = 1", "fixed K = 4", "fixed K = 2"],
        "optimal": ["optimal"],
    }
    assert config_of(arms["fixed K = 1"]).draft_length.tokens == 4


def test_drafts_switched_off_are_an_arm_that_is_not_compared_as_a_draft_length(tmp_path: Path) -> None:
    arms = planned(tmp_path, "fixed:0,4")
    off, on = arms["fixed K = 0"], arms["fixed K = 4"]
    assert off.plan == on.plan
    assert [(arm.spec_tokens, arm.is_fixed) for arm in (off, on)] == [(0, False), (4, True)]
    alone = planned(tmp_path, "fixed:0")
    assert config_of(alone["fixed K = 0"]).draft_length.policy == "fixed"


@pytest.mark.parametrize("proposer", ["{method: ngram, shared: true}", "{method: medusa, model: heads, tree: auto}"])
def test_where_that_would_not_be_the_same_each_has_its_own(tmp_path: Path, proposer: str) -> None:
    arms = planned(tmp_path, "fixed:1,4", proposer=f"proposer: {proposer}\n")
    assert len(engines({name: arm.plan for name, arm in arms.items()})) == 3
    assert [arms[name].spec_tokens for name in ("fixed K = 1", "fixed K = 4")] == [None, None]
    assert [config_of(arms[name]).draft_length.tokens for name in ("fixed K = 1", "fixed K = 4")] == [1, 4]


def test_a_draft_length_that_the_proposer_cannot_have_is_refused_by_its_file(tmp_path: Path) -> None:
    proposer = "proposer: {method: medusa, model: heads, tree: [[0], [1]]}\ndraft_length: {policy: fixed}\n"
    with pytest.raises(ConfigError, match=r"own\.yaml with draft_length fixed, 1 tokens"):
        planned(tmp_path, "fixed:1,4", proposer=proposer)


def test_vllms_own_settings_may_be_given_whole(tmp_path: Path) -> None:
    table = [[1, 8, 4], [9, 64, 0]]
    ngram = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}
    draft = {
        "method": "draft_model",
        "num_speculative_tokens": 2,
        "num_speculative_tokens_per_batch_size": table,
    }
    arms = planned(tmp_path, *(f"stock:{json.dumps(one)}" for one in (ngram, draft)), draft="some/draft")
    assert {name: arm.plan.speculative_config for name, arm in list(arms.items())[1:]} == {
        "vLLM's ngram, K = 4, prompt_lookup_max = 3": {"prompt_lookup_min": 2, **ngram},
        "vLLM's draft_model, K = 2, less in larger batches": {"model": "some/draft", **draft},
    }
    assert [arm.is_stock for arm in arms.values()] == [False, True, True]


def test_two_tables_of_lengths_are_two_arms(tmp_path: Path) -> None:
    tables = ([[1, 8, 4], [9, 64, 0]], [[1, 4, 4], [5, 64, 0]])
    words = [
        f'stock:{{"method": "ngram", "num_speculative_tokens": 4, "num_speculative_tokens_per_batch_size": {table}}}'
        for table in (*tables, tables[0])
    ]
    name = "vLLM's ngram, K = 4, less in larger batches"
    assert list(planned(tmp_path, *words)) == [NONE, name, f"{name} (2)"]


def test_a_file_may_be_switched_off_for_all_requests(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(NGRAM)
    arms = plan_arms([str(path), f"off:{path}"], base_of(None, None), tmp_path)
    (_, on), (name, off) = list(arms.items())[1:]
    assert (name, off.plan) == (f"{path}, off", on.plan)
    assert (on.spec_tokens, off.spec_tokens, off.is_fixed) == (None, 0, False)


def test_models_of_an_arm_are_known_for_their_memory(tmp_path: Path) -> None:
    (tmp_path / "heads").mkdir()
    (tmp_path / "own.yaml").write_text(
        "proposer:\n  method: cascade\n  proposers:\n    - {method: suffix}\n    - {method: medusa, model: heads}\n"
    )
    words = ["stock:draft_model", str(tmp_path / "own.yaml"), "stock:ngram"]
    arms = plan_arms(words, base_of(None, "some/draft"), tmp_path)
    assert [arm.plan.draft_models for arm in arms.values()] == [[], ["some/draft"], [str(tmp_path / "heads")], []]


def test_each_word_stands_for_one_or_more_arms_in_order(tmp_path: Path) -> None:
    stock = ["vLLM's ngram, K = 4", "vLLM's draft_model, K = 8"]
    found = list(planned(tmp_path, "fixed:0,4", "stock:ngram", "optimal", "stock:draft_model:8"))
    assert found == [NONE, "fixed K = 0", "fixed K = 4", stock[0], "optimal", stock[1]]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("fixed", "--arm: got 'fixed', which is no file either; allowed: none, optimal, fixed:K"),
        ("fixed:65", "--arm fixed:65: got '65'; allowed: whole numbers from 0 to 64, such as 1,2,4"),
        ("fixed:1,x", "--arm fixed:1,x: got '1,x'; allowed: whole numbers"),
        ("stock:medusa", "--arm stock:medusa: got 'medusa'; allowed: draft_model, eagle3, ngram, suffix"),
        ("off:none.yaml", "--arm off:none.yaml: there is no file 'none.yaml'; allowed: off:FILE, a plugin.yaml"),
        ("stock:{", "--arm stock:{: is not JSON: "),
        ("stock:{}", '--arm stock:{}: has no method; allowed: as in stock:{"method": "ngram", '),
        ("stock:ngram:0", "--arm stock:ngram:0: got '0'; allowed: whole numbers from 1 to 32"),
    ],
)
def test_other_words_are_refused_with_what_is_allowed(
    word: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        planned(tmp_path, word)
    assert str(refused.value).startswith(message)


SHARED = ArmPlan("fixed.yaml")
ARMS = {"none": PlannedArm(ArmPlan(None)), "a": PlannedArm(SHARED, 1), "b": PlannedArm(SHARED, 4)}
TARGET = str(model_path("target"))


@pytest.fixture
def happened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Records engines without processes: their name with "starts" or "ends", and their arguments."""
    seen: list[tuple[str, ...]] = []

    class NoProcess:
        def __init__(self, arguments: dict[str, Any], *rest: Any, name: str) -> None:
            self.name, self.arguments = name.removeprefix("arm "), arguments

        def wait(self) -> None:
            seen.append((self.name, "starts"))

        def stop(self) -> None:
            seen.append((self.name, "ends"))

        def facts(self) -> dict[str, Any]:
            return {"memory": self.arguments.get("gpu_memory_utilization"), "dtype": self.arguments.get("dtype")}

    monkeypatch.setattr(running, "EngineProcess", NoProcess)
    monkeypatch.setattr(running, "device_memory", lambda: ("GPU", 80_000_000_000))
    monkeypatch.setattr(running, "runs_on_cpu", lambda: False)
    return seen


def started(folder: Path, **options: Any) -> Any:
    console = Console(file=io.StringIO())
    one_at_a_time = options.pop("one_at_a_time", False)
    return running.running_engines(ARMS, TARGET, 3, False, folder, console, options, one_at_a_time=one_at_a_time)


def test_arms_of_one_engine_start_it_once_and_engines_share_the_memory(
    tmp_path: Path, happened: list[tuple[str, ...]]
) -> None:
    with started(tmp_path, dtype="bfloat16") as engines:
        names = {name: engines.of(name, 1).name for name in ARMS}
        assert happened == [("none", "starts"), ("a, b", "starts")]
    assert names == {"none": "none", "a": "a, b", "b": "a, b"}
    assert set(happened[2:]) == {("none", "ends"), ("a, b", "ends")}
    assert engines.facts == {name: {"memory": 0.45, "dtype": "bfloat16"} for name in ARMS}


def test_one_at_a_time_an_engine_ends_before_the_next_starts_and_each_round_has_a_new_one(
    tmp_path: Path, happened: list[tuple[str, ...]]
) -> None:
    with started(tmp_path, one_at_a_time=True) as engines:
        for name, number in (("none", 0), ("a", 0), ("a", 0), ("b", 0), ("b", 1), ("none", None)):
            assert engines.of(name, number).name == name
    order = ["none", "a", "b", "b", "none"]
    assert happened == [(name, what) for name in order for what in ("starts", "ends")]
    assert set(engines.facts) == set(ARMS)


def test_on_a_cpu_engines_need_their_weights_and_a_cache_of_its_own_size(
    tmp_path: Path, happened: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    for module in (running, engine_args):
        monkeypatch.setattr(module, "runs_on_cpu", lambda: True)
    # Two engines: 1 GiB of cache and 15 MB of weights each.
    both = 2 * (2**30 + (weight_bytes(TARGET, "float32") or 0) + OVERHEAD)
    monkeypatch.setattr(running, "device_memory", lambda: ("CPU", int(both) + 1))
    with started(tmp_path):
        assert len(happened) == 2
    monkeypatch.setattr(running, "device_memory", lambda: ("CPU", int(both) - 1))
    with pytest.raises(UserError, match="KV cache"), started(tmp_path):
        pass


def test_engines_that_do_not_fit_do_not_start(tmp_path: Path, happened: list[tuple[str, ...]]) -> None:
    with pytest.raises(UserError, match="--one-at-a-time"), started(tmp_path, gpu_memory_utilization=0.6):
        pass
    assert not happened
