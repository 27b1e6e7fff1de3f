"""Reports made by hand."""

from typing import Any

from vllm_spec_tools.certify.results import Check, Report


def check(name: str = "greedy", outcome: Any = "exact", engine: str = "fixed draft length", **values: Any) -> Check:
    return Check(name, engine, outcome, values.pop("detail", "all equal"), 500, 300, 24, **values)


def report(*checks: Check) -> Report:
    facts = {"dtype": "float32", "device": "cpu"}
    origin = {
        "arguments": ["certify"],
        "seed": 0,
        "date": "2026-01-02",
        "models": {"target": "/models/big"},
        "versions": {"vllm": "0.32.0"},
        "machine": {"cpu": "a CPU", "cores": 2},
    }
    return Report(checks, 1e-3, 5e-5, 1e-4, 83.2, facts, origin)
