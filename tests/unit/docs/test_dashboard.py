"""The Grafana dashboard and Prometheus's configuration fit the plugin's metrics."""

import re

import pytest
from prometheus_client import CollectorRegistry

from tests.dashboard import Exposed, dashboard, queries
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.metrics.counters import StepCounters
from vllm_spec_plugin.metrics.prometheus import Exporter

OWN = "vllm_spec_plugin:"


@pytest.fixture(scope="module")
def own() -> CollectorRegistry:
    """All metrics of the plugin, with series."""
    registry = CollectorRegistry()
    step = StepCounters("ngram", acceptance=[0.5], ended=[(0.5, 2.0)] * 400)
    step.count_verified(1, 1)
    step.count_kinds([0], 1)
    step.count_chosen(1)
    exporter = Exporter(registry)
    exporter.start(parse_config({"proposer": {"method": "ngram"}}, "").summary, ["ngram"], 4, "model", "0")
    exporter.add([step.to_payload()], "model", "0")
    return registry


@pytest.fixture(params=queries(), ids=lambda query: f"{query.where}-{query.promql}"[:60])
def query(request):
    """Each query."""
    return request.param


def test_what_each_query_asks_of_our_metrics_exists(query, own):
    selectors = [selector for selector in query.selectors() if selector.metric.startswith(OWN)]
    complaints = Exposed(own.collect()).missing(query) if selectors else []
    assert not [complaint for complaint in complaints if OWN in complaint]


def test_each_of_our_metrics_is_shown(own):
    shown = {selector.metric for query in queries() for selector in query.selectors()}
    families = list(own.collect())
    assert families
    assert not [family.name for family in families if (Exposed([family]).names - {"up"}).isdisjoint(shown)]


def test_each_query_follows_the_variables(query):
    """Nothing is shown of servers, models and engines that are not chosen."""
    if query.where.startswith("$"):
        return
    for selector in query.selectors():
        assert "instance" in selector.labels, selector
        if selector.metric.startswith(("vllm:", OWN)):
            assert {"model_name", "engine"} <= selector.labels, selector


def test_variables_that_are_used_are_defined():
    defined = {variable["name"] for variable in dashboard()["templating"]["list"]}
    used = {name for query in queries() for name in re.findall(r"\$(\w+)", query.promql)}
    assert {"instance", "model_name", "engine", "method"} == used
    assert used <= defined
    assert "datasource" in defined
