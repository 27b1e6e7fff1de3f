"""The measurement of host time refuses what a disturbed machine measured."""

import json
from pathlib import Path

import pytest

from benchmarks import native_host


@pytest.mark.parametrize(("again", "status"), [(114.0, 0), (116.0, 2), (86.0, 2)])
def test_nothing_is_written_where_an_arm_contradicts_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], again: float, status: int
) -> None:
    found = {"none": 50.0, "none again": 50.0, "vllm": 100.0, "vllm again": again}
    monkeypatch.setattr(native_host, "measure", lambda is_async, num_requests: found)
    monkeypatch.setattr(native_host, "equal_steps", lambda seconds: None)
    path = tmp_path / "host.json"
    monkeypatch.setattr("sys.argv", ["native_host", str(path)])
    assert native_host.main() == status
    assert path.exists() == (status == 0)
    told = capsys.readouterr().err
    if status:
        assert "error: synchronous, 1 requests: 'vllm' took 100 and" in told
        assert "allowed: 15% apart" in told
    else:
        assert json.loads(path.read_text())["steps"]["synchronous"]["8"] == found
