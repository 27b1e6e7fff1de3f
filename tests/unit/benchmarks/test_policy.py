"""`python -m benchmarks policy`: it runs, tells all parts, and says what does not go."""

import json
from pathlib import Path

from tests.unit.benchmarks.running import run


def test_all_parts_are_told_and_written_for_one_proposer_and_for_two(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    sizes = ("--requests", "3", "--requests", "1", "--requests", "3")
    result = run("policy", *sizes, "--tokens", "2", "--steps", "4", "--rounds", "3", "--json", path)
    assert result.exit_code == 0, result.output
    for part in ("plan", "outcomes", "measured", "total", "drafted", "n-gram and draft model"):
        assert part in result.stdout
    found = json.loads(path.read_text())
    assert (found["tokens"], found["steps"], found["rounds"], found["provenance"]["seed"]) == (2, 4, 3, 0)
    medians = {(row["arm"], row["level"], row["metric"]): row["median"] for row in found["medians"]}
    assert {key[:2] for key in medians} == {
        (arm, n) for arm in ("draft model", "n-gram and draft model") for n in (1, 3)
    }
    for arm, level, metric in medians:
        if metric == "total":
            parts = [medians[arm, level, part] for part in ("plan", "outcomes", "measured")]
            assert 0 < min(parts) <= max(parts) <= medians[arm, level, "total"]
            assert 0 < medians[arm, level, "draft_length"] <= 2
