"""A load test as JSON."""

import dataclasses
import json

from loadtests.report.figures import figures
from tests.unit.loadtests.report.results import MIXED


def test_all_figures_can_be_written_as_json() -> None:
    found = json.loads(json.dumps(figures(MIXED), allow_nan=False))
    assert (found["model"], found["began"]) == ("llama", "2026-11-22T03:04:05+00:00")
    assert (found["options"]["host"], found["options"]["num_users"]) == ("http://localhost:8000", 8)
    assert (found["all"]["requests"], found["all"]["goodput"]["good"]) == (30, 14)
    assert {name: summary["succeeded"] for name, summary in found["scenarios"].items()} == {"chat": 14, "edit": 14}
    assert (found["server"]["output_tokens"], found["server"]["acceptance_length"]) == (5100, 3.5)
    assert figures(dataclasses.replace(MIXED, server=None))["server"] is None
