"""Finds which metrics the Grafana dashboard asks Prometheus for, and which exist."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from promql_parser import AggregateExpr, BinaryExpr, Expr, MatchOp, VectorSelector

FOLDER = Path(__file__).parents[1] / "docs" / "observability"

# Prometheus adds these itself.
_SCRAPED_METRICS = frozenset({"up"})
_SCRAPED_LABELS = frozenset({"instance", "job"})
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
_DURATION = re.compile(r"\$__(rate_interval|range)\b")
_LABEL_VALUES = re.compile(r"label_values\((.+), (\w+)\)")


@dataclass(frozen=True)
class Selector:
    """Series that a query reads.

    Attributes:
        metric: their name.
        labels: what they are matched or grouped by.
        values: what single values the query expects of labels, `$variables` left out.
    """

    metric: str
    labels: frozenset[str]
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Query:
    """A query of the dashboard.

    Attributes:
        where: the title of its panel, or its variable.
        promql: the expression, with a time in the place of Grafana's variables for durations.
        legend: labels that are shown.
    """

    where: str
    promql: str
    legend: frozenset[str] = frozenset()

    def selectors(self) -> list[Selector]:
        """Lists the selectors of the query. Raises ValueError if it is not PromQL."""
        found: list[Selector] = []
        groups: list[frozenset[str]] = []

        def enter(node: Expr) -> None:
            groups.append(_grouped_by(node))
            if isinstance(node, VectorSelector):
                matchers = node.matchers.matchers
                labels = frozenset(matcher.name for matcher in matchers).union(*groups)
                exact = [matcher for matcher in matchers if matcher.op == MatchOp.Equal and "$" not in matcher.value]
                values = tuple((matcher.name, matcher.value) for matcher in exact)
                found.append(Selector(node.name or "", labels, values))

        def leave(_: Expr) -> None:
            groups.pop()

        promql_parser.walk(promql_parser.parse(self.promql), enter, leave)
        return found


def _grouped_by(node: Expr) -> frozenset[str]:
    """Labels that an aggregation keeps or drops, or that two sides are matched by."""
    if isinstance(node, AggregateExpr) and node.modifier is not None:
        return frozenset(node.modifier.labels)
    if isinstance(node, BinaryExpr) and node.modifier is not None and node.modifier.matching is not None:
        return frozenset(node.modifier.matching.labels)
    return frozenset()


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return json.loads((FOLDER / "grafana_dashboard.json").read_text())


def panels() -> list[dict[str, Any]]:
    """All panels, without the rows' titles."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[Query]:
    """All queries of panels and variables."""
    return [*_panel_queries(), *_variable_queries()]


def _panel_queries() -> Iterator[Query]:
    for panel in panels():
        for target in panel["targets"]:
            legend = frozenset(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            yield Query(panel["title"], _DURATION.sub("5m", target["expr"]), legend)


def _variable_queries() -> Iterator[Query]:
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.fullmatch(variable["query"]["query"])
            assert match is not None, f"{variable['name']} is not filled by label_values(metric, label)"
            yield Query(f"${variable['name']}", match[1], frozenset({match[2]}))


class Exposed:
    """The metrics of a server."""

    def __init__(self, families: Iterable[Metric]) -> None:
        """Takes in what was scraped.

        Args:
            families: of a registry, or of `parse`.
        """
        self.names: set[str] = set(_SCRAPED_METRICS)
        self.series: dict[str, list[dict[str, str]]] = {}
        for family in families:
            self.names |= {family.name + suffix for suffix in _SUFFIXES.get(family.type, ("",))}
            for sample in family.samples:
                self.series.setdefault(sample.name, []).append(sample.labels)

    @classmethod
    def parse(cls, exposition: str) -> "Exposed":
        """Parses an answer to GET /metrics."""
        return cls(text_string_to_metric_families(exposition))

    def missing(self, query: Query) -> list[str]:
        """Lists missing metrics and labels of the query. Labels of metrics that have no series yet are not known."""
        complaints = []
        for selector in query.selectors():
            if selector.metric not in self.names:
                complaints.append(f"{query.where}: there is no metric {selector.metric}")
            series = self.series.get(selector.metric, [])
            for label in sorted((selector.labels | query.legend) - _SCRAPED_LABELS):
                if any(label not in labels for labels in series):
                    complaints.append(f"{query.where}: {selector.metric} has no label {label}")
            for label, value in selector.values:
                if series and all(labels.get(label) != value for labels in series):
                    complaints.append(f'{query.where}: no {selector.metric} has {label}="{value}"')
        return complaints
