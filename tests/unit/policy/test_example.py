"""The policy in CONTRIBUTING.md plans what its text says."""

from pathlib import Path
from typing import Any

from vllm_spec_plugin.policy.control import DraftLengthControl, DraftRequest, StepBatch

GUIDE = Path(__file__).parents[3] / "CONTRIBUTING.md"


def test_the_example_drafts_less_in_larger_batches() -> None:
    [code] = [text for text in GUIDE.read_text().split("```python\n") if text.startswith('"""Shares a number')]
    names: dict[str, Any] = {}
    exec(code.partition("```")[0], names)
    control: DraftLengthControl = names["SharedControl"](8)
    requests = [DraftRequest("a", (5, 0), (0, 0)), DraftRequest("b", (1, 5), (0, 0))]
    assert control.plan(requests[:1], StepBatch(1, 1, 100, 100)) == [((0, 5),)]
    assert control.plan(requests, StepBatch(2, 2, 100, 100)) == [((0, 4),), ((0, 1), (1, 4))]
    assert control.plan(requests, StepBatch(2, 2, 100, 1)) == [(), ()]
