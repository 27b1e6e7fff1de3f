"""`vllm-spec bench` drives real engines; no figure is asserted that another machine would not have."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

NGRAM = "proposer: {method: ngram}\n"
COMMAND = """
bench --proposer ngram.yaml --arm fixed:3 --enforce-eager --rounds 1 --noise-budget 0
    --workload mixed --levels 2 --stream-tokens 48 --min-total-tokens 48 --request-tokens 16
    --workload switching --switching-levels 1 --phase-tokens 100
    --json load.json --markdown load.md --png load.png
"""


def bench(folder: Path, command: str) -> dict[str, Any]:
    """Runs a command that writes load.json."""
    (folder / "ngram.yaml").write_text(NGRAM)
    words = [str(Path(sys.executable).parent / "vllm-spec"), *shlex.split(command)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "load.json").read_text())
    return found


def test_arms_are_compared_and_fixed_draft_lengths_are_kept(tmp_path: Path) -> None:
    found = bench(tmp_path, COMMAND)
    assert found["provenance"]["versions"]["vllm"].startswith(("0.32", "0.33"))
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for row in found["medians"]:
        cells.setdefault((row["arm"], row["workload"]), {})[row["metric"]] = row["median"]
    assert found["arms"] == ["no speculation", "fixed K = 3"]
    assert len(cells) == 2 * 2
    agreements = {(one["arm"], one["workload"]): one["greedy"] for one in found["cells"] if one["greedy"]}
    # All arms but the first are compared with it.
    assert set(agreements) == {(arm, workload) for arm, workload in cells if arm != "no speculation"}
    assert not any(one["wrong"] for one in agreements.values())
    for (arm, workload), cell in cells.items():
        assert cell["output_tokens"] >= {"mixed": 2 * 48, "switching": 3 * 100}[workload]
        # The n-gram drafter has not always a guess.
        assert cell["draft_length"] <= {"no speculation": 0, "fixed K = 3": 3}[arm]
        assert ("acceptance_length" not in cell) == (arm == "no speculation")
        # With as many streams, a token for each of them takes about as long as these figures say of each other.
        streams = {"mixed": 2, "switching": 1}[workload]
        assert 0.2 < cell["tpot_p50"] * cell["tokens_per_second"] / streams < 5
        # One request per phase of `switching` begins, before the measured time.
        assert ("ttft_p50" not in cell) == (workload == "switching")
    # Two of its phases are greedy, with a request each.
    assert agreements["fixed K = 3", "switching"]["outputs"] == 2
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")
    assert "](load.png)" in (tmp_path / "load.md").read_text()


def test_preemptions_are_counted_and_told(tmp_path: Path) -> None:
    found = bench(
        tmp_path,
        """
        bench --proposer ngram.yaml --arm fixed:3 --enforce-eager --rounds 1 --noise-budget 0 --workload mixed
            --levels 6 --stream-tokens 48 --min-total-tokens 48 --request-tokens 64 --json load.json --markdown load.md
            -- --num-gpu-blocks-override 10 --block-size 32 --max-model-len 256
        """,
    )
    assert all(cell["preemptions"] for cell in found["cells"])
    assert "The KV cache was too small for all streams" in (tmp_path / "load.md").read_text()
