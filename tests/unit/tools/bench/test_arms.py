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

NGRAM = "proposer:\n  method: ngram\n  min_order: 7\ndraft_length:\n  policy: fixed\n  tokens: 3\n"
DRAFT, HEAD = str(model_path("draft")), str(model_path("eagle3"))
TABLE = [[1, 8, 4], [9, 64, 0]]


def planned(folder: Path, *words: str, proposer: str | None = None, draft: str | None = None) -> dict[str, PlannedArm]:
    path = None
    if proposer is not None:
        path = folder / "own.yaml"
        path.write_text(proposer)
    return plan_arms(words, base_of(path, draft), folder)


def config_of(arm: PlannedArm) -> PluginConfig:
    assert isinstance(arm.plan.speculative_config, str)
    return load_config(arm.plan.speculative_config)


def json_word(kind: str, **keys: Any) -> str:
    return f"{kind}:{json.dumps(keys)}"


NGRAM_SETTINGS = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5}


@pytest.mark.parametrize(
    ("word", "name", "settings"),
    [
        # As many tokens must match as for ours.
        ("stock:ngram:5", "vLLM's ngram, K = 5", NGRAM_SETTINGS | {"num_speculative_tokens": 5}),
        ("stock:draft_model", "vLLM's draft_model, K = 4", {"model": DRAFT, "num_speculative_tokens": 4}),
        ("stock:eagle3:2", "vLLM's eagle3, K = 2", {"model": HEAD, "num_speculative_tokens": 2}),
        (
            json_word("stock", method="ngram", num_speculative_tokens=4, prompt_lookup_max=3),
            "vLLM's ngram, K = 4, prompt_lookup_max = 3",
            {"prompt_lookup_min": 2, "prompt_lookup_max": 3},
        ),
        (
            json_word("stock", method="ngram", num_speculative_tokens=2, num_speculative_tokens_per_batch_size=TABLE),
            "vLLM's ngram, K = 2, less in larger batches",
            {"num_speculative_tokens_per_batch_size": TABLE},
        ),
    ],
)
def test_vllms_own_speculation_is_named_after_its_settings(
    tmp_path: Path, word: str, name: str, settings: dict[str, Any]
) -> None:
    none, arm = planned(tmp_path, word).items()
    assert (none, arm[0]) == ((NONE, PlannedArm(ArmPlan(None))), name)
    assert isinstance(arm[1].plan.speculative_config, dict)
    assert settings.items() <= arm[1].plan.speculative_config.items()
    assert arm[1].is_stock


def test_plugin_arms_are_the_proposer_with_their_own_draft_length(tmp_path: Path) -> None:
    arms = planned(tmp_path, "fixed:4", "optimal", proposer=NGRAM + "verification:\n  lenience: 0.9\n")
    for name, policy, tokens in (("fixed K = 4", "fixed", 4), ("optimal", "optimal", 8)):
        config = config_of(arms[name])
        own: Any = config.proposer
        assert (own.method, own.min_order) == ("ngram", 7)
        assert config.verification.lenience == 0.9
        assert (config.draft_length.policy, config.draft_length.tokens) == (policy, tokens)
    proposer: Any = config_of(planned(tmp_path, "optimal", draft="some/draft")["optimal"]).proposer
    assert (proposer.method, proposer.model, proposer.draft_sampling) == ("draft_model", "some/draft", "greedy")
    word = json_word("vllm", method="eagle3", model=HEAD, num_speculative_tokens=3)
    native = config_of(planned(tmp_path, word)["vLLM's eagle3, the plugin's lengths up to 3"])
    assert (native.proposer.method, native.draft_length.policy, native.draft_length.tokens) == ("vllm", "optimal", 3)


@pytest.mark.parametrize("draft", [None, "some/weights"])
@pytest.mark.parametrize("own", ["draft_model", "eagle3"])
def test_stock_takes_the_weights_that_were_named_or_the_proposers(tmp_path: Path, draft: str | None, own: str) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own.yaml").write_text(f"proposer: {{method: {own}, model: own}}\n")
    # Files are written elsewhere, where a relative path would mean something else.
    folder = tmp_path / "temporary"
    folder.mkdir()
    arms = plan_arms(["fixed:2", f"stock:{own}"], base_of(tmp_path / "own.yaml", draft), folder)
    assert [arm.plan.draft_models for arm in arms.values()] == [
        [],
        [str(tmp_path / "own")],
        [draft or str(tmp_path / "own")],
    ]


def test_fixed_arms_share_an_engine_of_the_longest_draft_and_0_is_drafts_off(tmp_path: Path) -> None:
    arms = planned(tmp_path, "fixed:1,4,0", "optimal")
    assert [(arm.spec_tokens, arm.is_fixed) for arm in arms.values()] == [
        (None, False),
        (1, True),
        (4, True),
        (0, False),
        (None, False),
    ]
    together = ["fixed K = 1", "fixed K = 4", "fixed K = 0"]
    found = engines({name: arm.plan for name, arm in arms.items()})
    assert list(found.values()) == [[NONE], together, ["optimal"]]
    assert config_of(arms["fixed K = 1"]).draft_length.tokens == 4


@pytest.mark.parametrize("proposer", ["{method: ngram, shared: true}", "{method: medusa, model: heads, tree: auto}"])
def test_where_that_would_not_be_the_same_each_has_its_own(tmp_path: Path, proposer: str) -> None:
    arms = planned(tmp_path, "fixed:1,4", proposer=f"proposer: {proposer}\n")
    assert len(engines({name: arm.plan for name, arm in arms.items()})) == 3
    assert [arms[name].spec_tokens for name in ("fixed K = 1", "fixed K = 4")] == [None, None]
    assert [config_of(arms[name]).draft_length.tokens for name in ("fixed K = 1", "fixed K = 4")] == [1, 4]


def test_two_tables_of_lengths_are_two_arms_and_a_file_may_be_switched_off(tmp_path: Path) -> None:
    words = [
        json_word("stock", method="ngram", num_speculative_tokens=4, num_speculative_tokens_per_batch_size=table)
        for table in (TABLE, [[1, 4, 4], [5, 64, 0]], TABLE)
    ]
    name = "vLLM's ngram, K = 4, less in larger batches"
    assert list(planned(tmp_path, *words)) == [NONE, name, f"{name} (2)"]
    path = tmp_path / "file.yaml"
    path.write_text(NGRAM)
    _, on, off = planned(tmp_path, str(path), f"off:{path}").values()
    assert (on.plan, on.spec_tokens, off.spec_tokens, off.is_fixed) == (off.plan, None, 0, False)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("fixed", "--arm: got 'fixed', which is no file either; allowed: none, optimal, fixed:K"),
        ("fixed:65", "--arm fixed:65: got '65'; allowed: whole numbers from 0 to 64, such as 1,2,4"),
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
    tree = "proposer: {method: medusa, model: heads, tree: [[0], [1]]}\ndraft_length: {policy: fixed}\n"
    with pytest.raises(ConfigError, match=r"own\.yaml with draft_length fixed, 1 tokens"):
        planned(tmp_path, "fixed:1,4", proposer=tree)


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


def started(folder: Path, *, one_at_a_time: bool = False, in_pairs: bool = False, **options: Any) -> Any:
    ways = {"one_at_a_time": one_at_a_time, "in_pairs": in_pairs}
    return running.running_engines(ARMS, TARGET, 3, False, folder, Console(file=io.StringIO()), options, **ways)


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


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_in_pairs_an_engine_starts_when_it_is_asked_for_and_is_shared_also_one_at_a_time(
    tmp_path: Path, happened: list[tuple[str, ...]], one_at_a_time: bool
) -> None:
    with started(tmp_path, one_at_a_time=one_at_a_time, in_pairs=True) as engines:
        assert not happened
        assert engines.of("a", 0) is engines.of("b", 0)
        engines.close("a")
        assert happened == [("a, b", "starts"), ("a, b", "ends")]


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
