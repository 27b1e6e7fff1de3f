"""Applies the table of rules to a configuration, its models and its server."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_spec_plugin.compat.model_facts import Facts
from vllm_spec_plugin.schema.errors import ConfigError, show_source
from vllm_spec_plugin.support.rules import NATIVE, RULES, Feature, Rule

if TYPE_CHECKING:
    from vllm_spec_plugin.config import PluginConfig


@dataclass(frozen=True)
class Refusal:
    """A configuration that one rule refuses.

    Attributes:
        rule: the rule.
        found: the refused value.
    """

    rule: Rule
    found: str

    def __str__(self) -> str:
        """The message, one line."""
        rule = self.rule
        return f"{rule.subject}: got {self.found}; {rule.reason}; allowed: {rule.allowed}. Or {rule.instead}"


def features_of(config: "PluginConfig") -> frozenset[Feature]:
    """Returns the features that `config` needs; every proposer may draft chains or nothing for some requests."""
    if config.is_native:
        return NATIVE
    features = {Feature.CHAIN, Feature.NO_DRAFTS}
    if config.drafts_trees:
        features.add(Feature.TREE)
    if config.kv_proposer is not None:
        features.add(Feature.DRAFT_MODEL)
    if any(proposer.uses_hidden_states for proposer in config.proposers):
        features.add(Feature.HIDDEN_STATES)
    return frozenset(features)


def refusals(features: frozenset[Feature], facts: Facts) -> list[Refusal]:
    """Returns every refusal of `features`; empty if they are served."""
    found = [(rule, rule.found(facts)) for rule in RULES if rule.features & features]
    return [Refusal(rule, text) for rule, text in found if text]


def check(features: frozenset[Feature], facts: Facts, source: str) -> None:
    """Refuses features that are not served.

    Args:
        features: features of the configuration.
        facts: properties of models and server.
        source: name of the configuration file, for the message.

    Raises:
        ConfigError: lists every refusal.
    """
    lines = [str(refusal) for refusal in refusals(features, facts)]
    if lines:
        raise ConfigError(_message(show_source(source), lines))


def _message(source: str, lines: Sequence[str]) -> str:
    if len(lines) == 1:
        return f"{source} cannot be served here: {lines[0]}"
    return "\n  ".join([f"{source} cannot be served here, for {len(lines)} reasons:", *lines])
