"""`vllm-spec bench host` measures real engines; no figure is asserted that another machine would not have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_spec_plugin.tools.bench.host.parts import DRAFT, LENGTHS, PARTS, PROPOSER, VIEWS

pytestmark = pytest.mark.engine

OURS, STOCK = "draft model, K = 2", "vLLM's draft_model, K = 2"
# Per arm the parts that it never has.
LACKING: dict[str, set[str]] = {
    "no speculation": {LENGTHS, VIEWS, PROPOSER, DRAFT},
    OURS: set(),
    STOCK: {LENGTHS},
}


def test_the_parts_of_a_step_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    command = [str(Path(sys.executable).parent / "vllm-spec"), "bench", "host", "--json", str(path)]
    arms = "--arm draft_model:2 --arm stock:draft_model:2"
    command += f"{arms} --levels 3 --steps 6 --rounds 1 --enforce-eager".split()
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "80"}, check=False)
    assert done.returncode == 0, done.stderr
    cells: dict[tuple[str, bool], dict[str, float]] = {}
    for row in json.loads(path.read_text())["medians"]:
        cells.setdefault((row["arm"], row["workload"] == "target computed"), {})[row["metric"]] = row["median"]
    assert len(cells) == 3 * 2
    for (arm, is_computed), cell in cells.items():
        parts = {part: cell[f"cpu, {part}"] for part in PARTS}
        assert 0 < cell["host"] < cell["cpu"] < 1
        # Every part is found under the names that the code has today.
        assert {part for part, seconds in parts.items() if not seconds} == LACKING[arm]
        # The text is scripted: in both ways of running the target the same drafts come to the same tokens.
        assert cell["output_tokens"] == cells[arm, not is_computed]["output_tokens"]
        assert cell["draft_tokens"] == cells[arm, not is_computed]["draft_tokens"]
    plain = cells["no speculation", False]
    assert (plain["draft_tokens"], plain["output_tokens"]) == (0, 1)
    for arm in (OURS, STOCK):
        cell = cells[arm, False]
        assert 0.6 < cell["draft_tokens"] <= 2
        assert 1.2 < cell["output_tokens"] < 1 + cell["draft_tokens"]
    assert "Host time per step by requests" in done.stdout
