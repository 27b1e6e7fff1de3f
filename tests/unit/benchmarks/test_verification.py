"""`python -m benchmarks verification`: it runs, tells times and gains, and says what does not go."""

import json
from pathlib import Path

import pytest

from tests.unit.benchmarks.running import run


def test_times_and_gains_are_told_and_written(tmp_path: Path) -> None:
    path = tmp_path / "verification.json"
    sizes = ("--vocab-size", "50", "--vocab-size", "70000", "--requests", "2", "--requests", "1")
    result = run("verification", *sizes, "--rounds", "2", "--steps", "600", "--gain-vocab-size", "20", "--json", path)
    assert result.exit_code == 0, result.output
    assert "Block verification gives up to" in result.stdout
    medians: dict[tuple[str, str], dict[str, float]] = {}
    for row in json.loads(path.read_text())["medians"]:
        medians.setdefault((row["arm"], row["workload"]), {})[row["metric"]] = row["median"]
    for arm in ("token", "block"):
        assert min(medians[arm, "vocabulary 50"]["seconds"], medians[arm, "vocabulary 70000"]["seconds"]) > 0
    gains = [(place, gain) for (arm, place), gain in medians.items() if arm == "block over token"]
    assert len(gains) == 10
    for place, gain in gains:
        length = int(place.split()[2].rstrip(","))
        assert 0 < gain["acceptance_rate"] < 1
        assert 0 < gain["token"] < gain["block"] < length
        assert gain["ratio"] == pytest.approx((1 + gain["block"]) / (1 + gain["token"]))
        # The draft's first token is accepted as often by either, later ones more seldom than by itself.
        assert gain["token"] < length * gain["acceptance_rate"] * 1.1
