"""Walks all ways to draft and all rules: each pair has an answer, and an answer that holds is checked."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ways.checks import CHECKS
from tests.ways.pipelines import HEADS, KINDS, VLLM, Bench, section
from tests.ways.table import (
    HOLDS,
    NOT_NEEDED,
    REFUSED,
    REPOSITORY,
    RULES,
    SHOWN,
    Rule,
    names_in_code,
)
from vllm_spec_plugin.compat.model_facts import Facts, ModelFacts
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.config.on_v2 import on_v2
from vllm_spec_plugin.config.request_options import check_options
from vllm_spec_plugin.gate import refusals
from vllm_spec_plugin.gate.ways import Way, parts_of, way_of
from vllm_spec_plugin.register import modes
from vllm_spec_plugin.register.translation import check_verification
from vllm_spec_plugin.schema.errors import ConfigError

PAIRS = [(rule, way) for rule in RULES for way in Way]
NAMES = [f"{rule.group} {rule.name}: {way}" for rule, way in PAIRS]


def of(prefix: str) -> pytest.MarkDecorator:
    found = [
        (pair, name) for pair, name in zip(PAIRS, NAMES, strict=True) if pair[0].answers[pair[1]].startswith(prefix)
    ]
    return pytest.mark.parametrize(("rule", "way"), [pair for pair, _ in found], ids=[name for _, name in found])


@pytest.mark.parametrize("group", names_in_code())
def test_each_rule_of_the_code_is_in_the_table(group: str) -> None:
    assert {rule.name for rule in RULES if rule.group == group} == names_in_code()[group]


def test_each_way_has_one_answer_of_a_known_kind() -> None:
    kinds = (SHOWN, REFUSED, NOT_NEEDED)
    assert not [pair for pair in PAIRS if not ((text := pair[0].answers[pair[1]]) == HOLDS or text.startswith(kinds))]
    assert all(rule.answers.keys() == set(Way) for rule in RULES)
    assert len({(rule.group, rule.name) for rule in RULES}) == len(RULES)


def test_each_way_has_the_mode_that_a_server_would_have() -> None:
    """Modes and ways are two lists; a mode without a way, or a way without a mode, would be a gap."""
    assert KINDS.keys() == set(Way)
    assert {id(kind.mode) for kind in KINDS.values()} == {
        id(mode) for mode in vars(modes).values() if isinstance(mode, modes.DraftingMode)
    }
    for way, kind in KINDS.items():
        is_v2 = kind.mode.needs_v2 or way in (Way.VLLM_V2, Way.TOKEN_ONLY_VLLM_V2)
        config = parse_config({"proposer": section(kind.proposers)}, "plugin.yaml")
        assert modes.mode_of(config, is_v2=is_v2) is kind.mode
        assert way_of(config, is_v2=is_v2, is_async=kind.is_async) is way


def checks() -> list[Any]:
    """Returns each check with a way, once for all rules that it is of."""
    found: dict[tuple[Any, Way], list[str]] = {}
    for rule, way in PAIRS:
        if rule.answers[way] == HOLDS:
            found.setdefault((CHECKS[rule.group, rule.name], way), []).append(rule.name)
    return [pytest.param(*pair, id=f"{', '.join(names)}: {pair[1]}") for pair, names in found.items()]


@pytest.mark.parametrize(("check", "way"), checks())
def test_a_rule_holds(
    check: Callable[[Bench], None], way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(Bench(way, tmp_path, monkeypatch))


@of(SHOWN)
def test_the_test_that_shows_a_rule_is_there(rule: Rule, way: Way) -> None:
    path, _, name = rule.answers[way].removeprefix(SHOWN).partition("::")
    functions = [
        node.name for node in ast.parse((REPOSITORY / path).read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    assert not name or name in functions


def lossy(way: Way) -> None:
    if KINDS[way].proposers[-1]["method"] == "vllm":
        for method in ("synthetic", "fly"):
            last = {**VLLM, "config": {**VLLM["config"], "rejection_sample_method": method}}
            with pytest.raises(ConfigError, match=f"got the text '{method}', which changes the distribution"):
                parse_config({"proposer": section([*KINDS[way].proposers[:-1], last])}, "plugin.yaml")
    data = {"proposer": section(KINDS[way].proposers), "verification": {"lenience": 0.9}}
    if KINDS[way].mode.needs_v2:
        with pytest.raises(ConfigError, match=r"verification\.lenience: got 0\.9, but vLLM's V2 runner serves"):
            check_verification(parse_config(data, "plugin.yaml"), "plugin.yaml", is_v2=True)
    else:
        with pytest.raises(ConfigError, match=r"verification\.lenience: got 0\.9, but vLLM's drafters are verified"):
            parse_config(data, "plugin.yaml")


def with_q(way: Way) -> None:
    proposers = KINDS[way].proposers
    if proposers[-1]["method"] == "vllm":
        last = {**VLLM, "config": {**VLLM["config"], "draft_sample_method": "probabilistic"}}
        with pytest.raises(ConfigError, match=r"draft_sample_method: got the text 'probabilistic', but the drafts of"):
            parse_config({"proposer": section([*proposers[:-1], last])}, "plugin.yaml")
        return
    drawn = [*proposers[:-1], {**proposers[-1], "draft_sampling": "probabilistic"}]
    with pytest.raises(ConfigError, match=r"draft_sampling: got the text '\w+', but vLLM's V2 runner serves"):
        check_verification(parse_config({"proposer": section(drawn)}, "plugin.yaml"), "plugin.yaml", is_v2=True)


def trees(way: Way) -> None:
    proposers = [*KINDS[way].proposers[:-1], {**HEADS, "tree": "auto"}]
    config = parse_config({"proposer": section(proposers)}, "plugin.yaml")
    with pytest.raises(ConfigError, match="trees need V1"):
        on_v2(config, "plugin.yaml")


def no_predictions(way: Way) -> None:
    methods = [proposer["method"] for proposer in KINDS[way].proposers]
    with pytest.raises(ValueError, match=r"spec_prediction: the server does not draft from predictions"):
        check_options({"spec_prediction": [1, 2]}, 4, methods)


def no_grammars(way: Way) -> None:
    config = parse_config({"proposer": section([{"method": "grammar"}, *KINDS[way].proposers[1:]])}, "plugin.yaml")
    with pytest.raises(ConfigError, match=r"proposer\.proposers: got grammar, before a method that drafts"):
        refusals.check(way, parts_of(config), Facts(ModelFacts("target", "LlamaForCausalLM")), "plugin.yaml")


REFUSALS = {
    "lossy": lossy,
    "with q": with_q,
    "trees": trees,
    "spec_prediction": no_predictions,
    "grammars": no_grammars,
    "continued": no_grammars,
    "verified_by_kind": no_grammars,
    "accepted_by_kind": no_grammars,
}


@of(REFUSED)
def test_the_other_is_refused(rule: Rule, way: Way) -> None:
    REFUSALS[rule.name](way)
