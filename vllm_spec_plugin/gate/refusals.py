"""Applies the table of rules to a configuration, its models and its server."""

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_spec_plugin.compat.model_facts import Facts
from vllm_spec_plugin.gate.rules import RULES, Rule
from vllm_spec_plugin.gate.ways import Part, Way
from vllm_spec_plugin.schema.errors import ConfigError, show_source


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
        return f"{rule.subject}: got {self.found}; {rule.reason}; allowed: {rule.allowed}. Or {rule.scope.instead}"


def refusals(way: Way, parts: frozenset[Part], facts: Facts) -> list[Refusal]:
    """Returns every refusal of a way to draft, whose configuration has these parts; empty if it is served."""
    found = [(rule, rule.found(facts)) for rule in RULES if rule.applies(way, parts)]
    return [Refusal(rule, text) for rule, text in found if text]


def check(way: Way, parts: frozenset[Part], facts: Facts, source: str) -> None:
    """Refuses a way to draft that is not served.

    Args:
        way: the configuration's.
        parts: the configuration's, for which further rules hold.
        facts: properties of models and server.
        source: name of the configuration file, for the message.

    Raises:
        ConfigError: lists every refusal.
    """
    lines = [str(refusal) for refusal in refusals(way, parts, facts)]
    if lines:
        raise ConfigError(_message(show_source(source), lines))


def _message(source: str, lines: Sequence[str]) -> str:
    if len(lines) == 1:
        return f"{source} cannot be served here: {lines[0]}"
    return "\n  ".join([f"{source} cannot be served here, for {len(lines)} reasons:", *lines])
