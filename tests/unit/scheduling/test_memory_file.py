"""The file of a policy's memory: written as a whole, bounded, and never the end of a server."""

import itertools
import json
import logging
from pathlib import Path

import pytest

from vllm_spec_plugin.policy.memory import Learned, Verdict
from vllm_spec_plugin.scheduling import memory_file
from vllm_spec_plugin.scheduling.memory_file import MemoryFile

LEARNED = Learned(
    log_odds=[[1.0], [0.5]],
    information=[[2.0], [3.0]],
    variance=[1.0, 1.0],
    step_tokens=[1.0, 2.0],
    step_seconds=[0.01, 0.011],
    step_others=[0.0, 0.0, 0.0, 0.0],
    draft_costs=[[0.0, 1e-3, 0.0, 0.0]],
    verdicts={3: Verdict(gain=0.5, error=0.1, retry=0, expected=8.0, accepted=6.0)},
)
BROKEN = {
    "no JSON": "{",
    "another version": LEARNED.model_dump_json().replace('"version":1', '"version":2'),
    "not a number": LEARNED.model_dump_json().replace("0.011", "NaN"),
    "negative seconds": LEARNED.model_dump_json().replace("0.011", "-0.011"),
    "a text": LEARNED.model_dump_json().replace("0.011", '"0.011"'),
    "something else": json.dumps({"version": 1, "prompt": "a secret"}),
    "too large": " " * (1 << 20) + LEARNED.model_dump_json(),
    "a list": "[]",
    "no text": "\udcff",
}


@pytest.fixture(autouse=True)
def _logs(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("vllm").propagate = True
    caplog.set_level("WARNING")


def test_what_is_written_is_read_by_the_same_server_only(tmp_path: Path) -> None:
    MemoryFile(tmp_path / "new" / "folder", "one").write(LEARNED)
    assert MemoryFile(tmp_path / "new" / "folder", "one").read() == LEARNED
    assert MemoryFile(tmp_path / "new" / "folder", "another").read() is None
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 1


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_with_something_else_is_one_warning_and_replaced(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = MemoryFile(tmp_path, "one")
    file.path.write_bytes(BROKEN[kind].encode(errors="surrogateescape"))
    assert file.read() is None
    [record] = caplog.records
    assert str(file.path) in record.getMessage()
    file.write(LEARNED)
    assert file.read() == LEARNED


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    file = MemoryFile(blocked / "folder", "one")
    for _ in range(3):
        file.write(LEARNED)
    [record] = caplog.records
    assert "draft_length.memory: off" in record.getMessage()
    assert not file.is_due(is_busy=False)


def test_the_folder_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_file, "_MAX_FILES", 3)
    for i in range(6):
        MemoryFile(tmp_path, str(i)).write(LEARNED)
    assert len(list(tmp_path.iterdir())) == 3
    assert MemoryFile(tmp_path, "5").read() == LEARNED


def test_it_is_written_every_half_minute_and_when_the_last_request_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.count(0, 5)
    monkeypatch.setattr(memory_file, "monotonic", lambda: float(next(times)))
    file = MemoryFile(tmp_path, "one")
    due = []
    for _ in range(19):
        due.append(file.is_due(is_busy=True))
        if due[-1]:
            file.write(LEARNED)
    assert sum(due) == 3
    assert due.index(True) == 5
    assert file.is_due(is_busy=False)
