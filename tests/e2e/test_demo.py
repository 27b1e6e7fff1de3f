"""The demo of an installed wheel, in an empty folder."""

import json

import pytest

from tests.wheel import build_wheels, run_installed

pytestmark = pytest.mark.e2e


def test_a_wheel_demonstrates_itself_in_an_empty_folder(tmp_path):
    sites, folder = build_wheels(tmp_path), tmp_path / "empty"
    folder.mkdir()
    done = run_installed(sites, folder, "demo", "--quick", "--max-tokens", "32", "--json", "demo.json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((folder / "demo.json").read_text())
    (verdict,) = found["conclusion"]
    assert "all 3 pairs of outputs identical; exactness: not tested." in verdict
    assert verdict in " ".join(done.stdout.split())
    assert found["problems"] == []
    rows = [row for row in found["measurements"] if row["metric"] == "tokens"]
    assert len(rows) == 6
    assert all(row["value"] > 8 for row in rows)
    assert (folder / "vllm-spec-demo.png").read_bytes().startswith(b"\x89PNG")
    assert "Next commands" in done.stdout
