"""A choice of the support matrix (`make matrix`): windows, sinks and experts, adapters, and layers that are refused."""

import json
import subprocess
import sys

import pytest

from tests.engine.arms import REPOSITORY
from tests.matrix.page import RESULTS, release
from tests.matrix.running import columns_of

# Windows, sinks and experts are in test_draft_windows.py, adapters in test_eagle3.py, refusals in tests/unit.
pytestmark = [pytest.mark.engine, pytest.mark.full]
CHOICE = ["gpt_oss", "llama_lora", "granite_moe_hybrid"]


def test_a_choice_of_the_matrix_is_as_the_page_says(tmp_path):
    """Greedy and seeded outputs are without drafts'; an output that differs by a tie is one."""
    results = tmp_path / "results.json"
    command = [sys.executable, "-m", "tests.matrix", "--only", ",".join(CHOICE), "--results", str(results)]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found, expected = (json.loads(path.read_text())[release()]["rows"] for path in (results, RESULTS))
    verdicts, recorded = (
        {(row, column): rows[row]["cells"][column]["verdict"] for row in CHOICE for column in columns_of(row)}
        for rows in (found, expected)
    )
    assert verdicts == recorded
