"""Which arms a sweep has, and which of them one engine can be. Imports no vLLM."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vllm_spec_plugin.bench.comparison import NONE
from vllm_spec_plugin.bench.plans import ArmPlan, plan_file, stock_plan
from vllm_spec_plugin.config import NgramConfig, PluginConfig, load_config, parse_config

OPTIMAL = "optimal"
STOCK_METHODS = ("draft_model", "ngram")


@dataclass(frozen=True)
class LoadArm:
    """An arm of a sweep.

    Attributes:
        plan: its engine. Arms whose plans are equal share one: engines cost memory, and a minute to start.
        spec_tokens: most draft tokens, asked for with each request, 0 is off; None is as the engine does.
        is_fixed: whether it is one of those that the best fixed draft length is chosen from.
    """

    plan: ArmPlan
    spec_tokens: int | None = None
    is_fixed: bool = False


@dataclass(frozen=True)
class Wanted:
    """What to compare with no speculation.

    Attributes:
        proposer: a plugin.yaml; its proposer is that of the fixed arms and of `optimal`, its draft_length is ignored.
            None is the bundled draft model, drafting greedily: see `workloads.load_job`.
        fixed: draft lengths; 0 is an engine with the plugin whose requests have drafts switched off.
        optimal: most tokens of that policy; None is without it.
        stock: methods of vLLM's own.
        stock_tokens: their K.
        configs: more plugin.yaml files, each an arm as it is.
    """

    proposer: Path | None
    fixed: Sequence[int]
    optimal: int | None
    stock: Sequence[str]
    stock_tokens: int
    configs: Sequence[Path]


def plan_load_arms(wanted: Wanted, draft: str, folder: Path) -> dict[str, LoadArm]:
    """The arms by name, `none` first.

    Args:
        wanted: which.
        draft: the bundled draft's path; stock's draft model too, unless the proposer names another.
        folder: where files may be written that the engines can read.

    Raises:
        ConfigError: a plugin.yaml is not there, has a mistake, or goes with none of the draft lengths.
    """
    if wanted.proposer is None:
        source = "the bundled draft model"
        proposer = {"method": "draft_model", "model": draft, "draft_sampling": "greedy"}
        config = parse_config({"proposer": proposer}, source)
    else:
        source = str(wanted.proposer)
        config = load_config(wanted.proposer)

    def written(policy: str, tokens: int) -> ArmPlan:
        sections = config.model_dump(mode="json") | {"draft_length": {"policy": policy, "tokens": tokens}}
        parse_config(sections, f"{source} with draft_length {policy}, {tokens} tokens")
        path = folder / f"{policy}-{tokens}.yaml"
        path.write_text(yaml.safe_dump(sections), encoding="utf-8")
        return plan_file(path)

    arms = {NONE: LoadArm(ArmPlan(None, 0, None))}
    most = max(wanted.fixed, default=0)
    for tokens in wanted.fixed:
        if tokens == 0 or _may_share(config):
            plan = written("fixed", most or config.draft_length.tokens)
            arms[f"K = {tokens}"] = LoadArm(plan, tokens, is_fixed=tokens > 0)
        else:
            arms[f"K = {tokens}"] = LoadArm(written("fixed", tokens), is_fixed=True)
    if wanted.optimal is not None:
        arms[OPTIMAL] = LoadArm(written("optimal", wanted.optimal))
    for method in wanted.stock:
        arms[f"stock {method}"] = LoadArm(stock_plan(method, _draft_of(config) or draft, wanted.stock_tokens))
    for path in wanted.configs:
        arms[str(path)] = LoadArm(plan_file(path))
    return arms


def engines(arms: dict[str, LoadArm]) -> dict[str, list[str]]:
    """The arms by engine, each engine called after its arms."""
    groups: dict[str, list[str]] = {}
    for name, arm in arms.items():
        groups.setdefault(repr(arm.plan), []).append(name)
    return {", ".join(names): names for names in groups.values()}


def _may_share(config: PluginConfig) -> bool:
    """Whether requests with `spec_tokens` are drafted for as by an engine of that K."""
    learns = any(isinstance(proposer, NgramConfig) and proposer.shared for proposer in config.proposers)
    return not learns and not config.drafts_trees


def _draft_of(config: PluginConfig) -> str | None:
    found: list[Any] = [proposer.model for proposer in config.proposers if proposer.method == "draft_model"]
    return found[0] if found else None
