"""Reports made by hand."""

from typing import Any

from vllm_spec_tools.certify.results import Certificate, Check
from vllm_spec_tools.certify.subject import FORCED
from vllm_spec_tools.report.provenance import provenance


def check(name: str = "greedy", outcome: Any = "exact", engine: str = FORCED, **values: Any) -> Check:
    return Check(name, engine, outcome, values.pop("detail", "all equal"), 500, 300, 1200, **values)


def report(*checks: Check) -> Certificate:
    facts = {"dtype": "float32", "device": "cpu"}
    origin = provenance(["certify"], 0, (), {"target": "/models/big"})
    return Certificate(checks, 1e-3, 5e-5, 1e-4, 83.2, 2.0, facts, origin)
