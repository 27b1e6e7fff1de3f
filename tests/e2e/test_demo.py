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
    assert "all 3 pairs of outputs identical." in verdict
    assert verdict in " ".join(done.stdout.split())
    assert found["problems"] == []
    answers = [answer for pair in found["answers"] for answer in (pair["plain"], pair["drafted"])]
    assert len(answers) == 6
    assert all(answer["tokens"] > 8 for answer in answers)
    assert "Next commands" in done.stdout
