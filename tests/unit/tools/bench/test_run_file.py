"""Files of runs: an interrupted comparison goes on where it was cut off."""

from pathlib import Path

import pytest

from tests.unit.tools.bench.load.cases import run, steady
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.records import LoadOutput
from vllm_spec_tools.bench.run_file import RunFile

SUBJECT = {"arms": ["no speculation", "optimal"], "options": {"seed": (1, 2)}}
TURN = LoadOutput([3], True, "longer")
RUN = run("optimal", [steady(10.0, 30, outputs=[LoadOutput([1, 2], False, turns=(TURN,))])])


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    RunFile(tmp_path / "runs", SUBJECT).add(RUN)
    assert RunFile(tmp_path / "runs", SUBJECT).kept == {(RUN.arm, RUN.cell, RUN.round): RUN}


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "runs"
    RunFile(path, SUBJECT).add(RUN)
    whole = path.read_bytes()
    for end in (len(whole) - 1, len(whole) - 20):
        path.write_bytes(whole[:end])
        file = RunFile(path, SUBJECT)
        assert not file.kept
        file.add(RUN)
        assert path.read_bytes() == whole


def test_an_empty_file_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    RunFile(tmp_path / "runs", SUBJECT).add(RUN)
    assert len(RunFile(tmp_path / "runs", SUBJECT).kept) == 1


def test_runs_of_another_command_are_refused(tmp_path: Path) -> None:
    RunFile(tmp_path / "runs", SUBJECT).add(RUN)
    with pytest.raises(UserError, match=r"runs: has runs of a command with other arms, eager; allowed: the same"):
        RunFile(tmp_path / "runs", SUBJECT | {"arms": [], "eager": True})


@pytest.mark.parametrize("text", ["hello\n", '{"arms": []}\n{"arm": 1}\n', "[1]\n"])
def test_another_file_is_refused_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "runs"
    path.write_text(text)
    with pytest.raises(UserError, match=r"is no file of runs|runs of a command with other"):
        RunFile(path, SUBJECT)
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written: No such file"):
        RunFile(tmp_path / "missing" / "runs", SUBJECT)
