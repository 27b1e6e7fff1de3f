"""`vllm-spec bench load` drives real engines; no figure is asserted that another machine would not have."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

NGRAM = "proposer: {method: ngram}\n"
COMMAND = """
bench load --proposer ngram.yaml --no-optimal --fixed 1,3 --enforce-eager --rounds 1 --patience 0
    --workload mixed --levels 2 --tokens 24 --least-tokens 24 --request-tokens 16
    --workload switching --switching-levels 1 --phase-tokens 100
    --json load.json --markdown load.md --png load.png
"""


def test_arms_are_swept_and_fixed_draft_lengths_are_kept(tmp_path: Path) -> None:
    (tmp_path / "ngram.yaml").write_text(NGRAM)
    command = [str(Path(sys.executable).parent / "vllm-spec"), *shlex.split(COMMAND)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "load.json").read_text())
    cells = {(cell["arm"], cell["workload"]): cell for cell in found["cells"]}
    assert {arm for arm, _ in cells} == {"none", "K = 1", "K = 3"}
    for (arm, workload), cell in cells.items():
        assert sum(cell["tokens_by_kind"].values()) >= {"mixed": 2 * 24, "switching": 3 * 100}[workload]
        # The n-gram drafter has not always a guess.
        assert cell["draft_length"] <= {"none": 0, "K = 1": 1, "K = 3": 3}[arm]
        assert (cell["acceptance_length"] is None) == (arm == "none")
    assert cells["K = 1", "switching"]["draft_length"] < cells["K = 3", "switching"]["draft_length"]
    (level,) = found["switching"]["levels"]
    assert [len(phase["rates"]["none"]) for phase in level["phases"]] == [2, 2, 2]
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")
    assert "](load.png)" in (tmp_path / "load.md").read_text()
