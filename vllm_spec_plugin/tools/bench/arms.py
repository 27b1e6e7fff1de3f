"""Engines of the chosen arms, and which arms can share one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from vllm_spec_plugin.config import PluginConfig, load_config, parse_config
from vllm_spec_plugin.tools.bench.arm_spec import Choice
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan, plan_file, stock_plan
from vllm_spec_plugin.tools.demo import model_path


@dataclass(frozen=True)
class PlannedArm:
    """An arm of a comparison.

    Attributes:
        plan: its engine. Arms whose plans are equal share one: engines cost memory, and a minute to start.
        spec_tokens: maximum draft tokens in each request; 0 is off, None the engine's own.
        is_fixed: whether it is one of those that the best fixed draft length is chosen from.
    """

    plan: ArmPlan
    spec_tokens: int | None = None
    is_fixed: bool = False


@dataclass(frozen=True)
class Base:
    """The proposer of the plugin's arms.

    Attributes:
        config: of the arms `optimal` and `fixed`, which replace its draft_length.
        source: where it is from, for messages.
        draft: the draft model of vLLM's own speculation, a folder's absolute path or a hub name.
    """

    config: PluginConfig
    source: str
    draft: str

    @property
    def models(self) -> dict[str, str]:
        """The draft model, for the record."""
        return {"draft": self.draft}


def base_of(proposer: Path | None, draft: str | None, draft_sampling: str) -> Base:
    """Chooses the proposer of the plugin's arms, by the command's options.

    Args:
        proposer: path of a plugin.yaml; None is a draft model.
        draft: folder or hub name of the draft model; None is the one in `proposer`, else the bundled one.
        draft_sampling: how that draft model drafts, without `proposer`.

    Raises:
        ConfigError: the plugin.yaml is not there, or has a mistake.
    """
    bundled = str(model_path("draft"))
    if proposer is not None:
        config = load_config(proposer)
        return Base(config, str(proposer), draft or _draft_of(config) or bundled)
    section = {"method": "draft_model", "model": draft or bundled, "draft_sampling": draft_sampling}
    return Base(parse_config({"proposer": section}, "the draft model"), "the draft model", draft or bundled)


def plan_arms(
    choices: Sequence[Choice], base: Base, optimal_tokens: int, folder: Path, *, may_share: bool = True
) -> dict[str, PlannedArm]:
    """The arms by name, in order.

    Args:
        choices: which.
        base: the configuration with the proposer.
        optimal_tokens: most that `optimal` drafts.
        folder: where files may be written that the engines can read.
        may_share: arms of fixed draft length may be requests of one engine, each saying its own.

    Raises:
        ConfigError: a plugin.yaml is not there, has a mistake, or goes with none of the draft lengths.
    """

    def written(policy: str, tokens: int) -> ArmPlan:
        sections = base.config.model_dump(mode="json") | {"draft_length": {"policy": policy, "tokens": tokens}}
        parse_config(sections, f"{base.source} with draft_length {policy}, {tokens} tokens")
        path = folder / f"{policy}-{tokens}.yaml"
        path.write_text(yaml.safe_dump(sections), encoding="utf-8")
        return plan_file(path)

    longest = max((choice.tokens for choice in choices if choice.kind == "fixed"), default=0)
    is_shared = may_share and _is_the_same_shared(base.config)

    def planned(choice: Choice) -> PlannedArm:
        tokens = choice.tokens
        match choice.kind:
            case "none":
                return PlannedArm(ArmPlan(None, 0, None))
            case "optimal":
                return PlannedArm(replace(written("optimal", optimal_tokens), without=choice.detail or None))
            case "fixed" if tokens == 0 or is_shared:
                plan = written("fixed", longest or base.config.draft_length.tokens)
                return PlannedArm(plan, tokens, is_fixed=tokens > 0)
            case "fixed":
                return PlannedArm(written("fixed", tokens), is_fixed=True)
            case "stock":
                return PlannedArm(stock_plan(choice.detail, base.draft, tokens))
            case "file":
                return PlannedArm(plan_file(Path(choice.detail)))

    return {choice.name: planned(choice) for choice in choices}


def engines(arms: Mapping[str, PlannedArm]) -> dict[str, list[str]]:
    """The arms by engine, each engine called after its arms."""
    groups: dict[str, list[str]] = {}
    for name, arm in arms.items():
        groups.setdefault(repr(arm.plan), []).append(name)
    return {", ".join(names): names for names in groups.values()}


def _is_the_same_shared(config: PluginConfig) -> bool:
    """Whether requests with `spec_tokens` are drafted for as by an engine of that K."""
    return config.text_scope is None and not config.drafts_trees


def _draft_of(config: PluginConfig) -> str | None:
    return next((proposer.draft_weights.model for proposer in config.proposers if proposer.draft_weights), None)
