"""`vllm-spec bench drafting` measures real engines; no figure is asserted that another machine would not have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_spec_plugin.tools.bench.drafting.parts import FORWARD, PARTS

pytestmark = pytest.mark.engine

K = 3
NONE, STOCK, PLUGIN = "no speculation", f"vLLM's draft_model, K = {K}", f"fixed K = {K}"


def test_drafting_is_measured_beside_stock_vllms(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    command = [str(Path(sys.executable).parent / "vllm-spec"), "bench", "drafting", "--json", str(path)]
    command += f"--arm stock:draft_model:{K} --arm fixed:{K} --enforce-eager --profile --noise-budget 5".split()
    command += ["--batch", "2", "--temperature", "0", "--output-tokens", "24", "--rounds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "80"}, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert found["provenance"]["versions"]["vllm"].startswith("0.32")
    cells: dict[str, dict[str, float]] = {}
    for row in found["medians"]:
        cells.setdefault(row["arm"], {})[row["metric"]] = row["median"]
    assert found["arms"] == {NONE: 0, STOCK: K, PLUGIN: K}
    for arm in (STOCK, PLUGIN):
        cell = cells[arm]
        assert "tree_step" not in cell
        assert 1 < cell["acceptance_length"] <= K + 1
        # A draft step is part of drafting, drafting part of a step, and a step takes from microseconds to a second.
        assert 1e-5 < cell["draft_step"] < cell["draft_step_prepared"] < 1
        assert 1e-4 < cell["target_step"] < 1
        assert cell["limit, free"] == pytest.approx(cell["acceptance_length"])
        assert 0 < cell["limit, drafting"] < cell["limit, verifying"]
        parts = {part: cell[f"part, {part}"] for part in PARTS}
        assert max(parts, key=lambda part: parts[part]) == FORWARD
    assert not {"acceptance_length", "draft_step"} & cells[NONE].keys()
    # The shares are of all the time of a run.
    for arm in cells:
        by_round: dict[int, list[float]] = {}
        for row in found["measurements"]:
            if row["arm"] == arm and row["metric"].startswith("share, "):
                by_round.setdefault(row["round"], []).append(row["value"])
        assert [sum(shares) for shares in by_round.values()] == pytest.approx([1, 1])
        assert min(map(min, by_round.values())) >= 0
    # Both draft the same tokens after the same texts.
    assert cells[PLUGIN]["acceptance_length"] == pytest.approx(cells[STOCK]["acceptance_length"], rel=0.2)
    for title in ("Draft step, ms", "Limit of the speedup", "Where the time goes", "Where drafting goes"):
        assert title in done.stdout
