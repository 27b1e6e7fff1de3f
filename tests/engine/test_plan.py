"""`vllm-spec bench --recommend` measures real engines; no figure is asserted that another machine would not have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path

# tests/unit/cli/test_plan.py has the command with engines that are made up, test_bench.py real ones side by side.
pytestmark = [pytest.mark.engine, pytest.mark.full]

PROMPTS = (
    {"prompt": "class Person:\n    def get_name(self):\n        return", "workload": "code"},
    {"prompt": "def add(a, b):\n    return a + b\n\n\ndef add(a, b):\n", "workload": "edit"},
)
OPTIONS = "--levels 2 --tokens 3 --request-tokens 16 --rounds 3 --noise-budget 0 --enforce-eager"
FILES = "--out plugin.yaml --out-anyway --json plan.json --markdown plan.md --png plan.png"


def test_a_proposer_is_recommended_and_compared(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in PROMPTS))
    command = [str(Path(sys.executable).parent / "vllm-spec"), "bench", "--recommend", "--prompts", "prompts.jsonl"]
    command += ["--model", str(model_path("target")), "--draft", str(model_path("draft"))]
    command += [*OPTIONS.split(), *FILES.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "plan.json").read_text())
    found = data["recommendation"]

    # Suffixes, the draft model and their cascade, in 2 workloads with 1, 2 and 3 tokens.
    tried = {(one["candidate"], one["workload"], one["tokens"]): one for one in found["acceptance"]}
    assert len(tried) == 3 * 2 * 3
    assert tried["draft_model", "code", 3]["tokens_per_step"] > 1
    assert found["memory"]["draft_model"]["kv_per_token"] > 0
    for one in found["forecasts"]:
        (level,) = one["levels"]
        assert 1e-4 < level["plain_step"] < 1
        assert all(0 <= seconds < 1 for seconds in level["drafting"].values())
        assert level["best"]["speedup"] >= 1

    # What was compared is what is written; where nothing was expected to pay there is neither.
    path = tmp_path / "plugin.yaml"
    assert path.exists() == bool(found["choice"]["tokens"]) == ("cells" in data)
    if "cells" in data:
        config = load_config(path)
        assert config.draft_length.tokens == found["choice"]["tokens"]
        none, recommended = data["cells"]
        # The rounds of the option, not those of the passes that predict.
        assert none["rounds"] == recommended["rounds"] == 3
        assert recommended["greedy"]["wrong"] == 0
    assert "Switch it on" in done.stdout or "Leave it off" in done.stdout
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    # A line per engine where there is no terminal.
    assert "the engine of suffix, K = 1, " in done.stderr
