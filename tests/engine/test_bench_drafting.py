"""`vllm-spec bench drafting` measures real engines; no figure is asserted that another machine would not have."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_spec_plugin.tools.bench.drafting.parts import FORWARD, PARTS

pytestmark = pytest.mark.engine

K = 3
STOCK, PLUGIN = f"stock draft_model, K = {K}", f"K = {K}"


def test_drafting_is_measured_beside_stock_vllms(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    command = [str(Path(sys.executable).parent / "vllm-spec"), "bench", "drafting", "--json", str(path)]
    command += f"--arm stock:draft_model:{K} --arm fixed:{K} --enforce-eager --profile --patience 5".split()
    command += ["--batch", "2", "--temperature", "0", "--output-tokens", "24", "--rounds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "80"}, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert found["provenance"]["versions"]["vllm"].startswith("0.32")
    cells = {cell["arm"]: cell for cell in found["cells"]}
    assert list(cells) == ["none", STOCK, PLUGIN]
    for arm in (STOCK, PLUGIN):
        cell = cells[arm]
        medians = {name: spread["median"] for name, spread in cell["medians"].items() if spread}
        assert "tree_step" not in medians
        assert 1 < cell["acceptance_length"] <= K + 1
        # A draft step is part of drafting, drafting part of a step, and a step takes from microseconds to a second.
        assert 1e-5 < medians["draft_step"] < medians["draft_step_prepared"] < 1
        assert 1e-4 < medians["target_step"] < 1
        bound = cell["limit"]
        assert bound["free"] == pytest.approx(statistics.median(cell["acceptance_lengths"].values()))
        assert 0 < bound["drafting"] < bound["verifying"]
        assert set(cell["parts"]) == set(PARTS)
        assert max(cell["parts"], key=cell["parts"].get) == FORWARD
    assert cells["none"]["acceptance_length"] is None
    assert cells["none"]["medians"]["draft_step"] is None
    # 2 requests of 24 tokens; the shares are of all the time that 2 rounds took.
    for cell in cells.values():
        seconds = sum(48 / rate for rate in cell["tokens_per_second"].values())
        assert sum(cell["shares"].values()) == pytest.approx(seconds)
        assert min(cell["shares"].values()) >= 0
    # Both draft the same tokens after the same texts.
    assert cells[PLUGIN]["acceptance_length"] == pytest.approx(cells[STOCK]["acceptance_length"], rel=0.2)
    for title in ("Draft step, ms", "Limit of the speedup", "Where the time goes", "Where drafting goes"):
        assert title in done.stdout
