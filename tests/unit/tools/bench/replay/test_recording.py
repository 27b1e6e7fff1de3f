"""Recordings as files, and what is asked of engines to make one."""

import json
from pathlib import Path

import pytest

from tests.unit.tools.bench.replay.cases import recording
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.tools.bench.replay.record import KINDS, fixed, nameless
from vllm_spec_plugin.tools.bench.replay.recording import bundled, read

MOST_BYTES = 200_000


def test_a_recording_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "recording.json"
    recording().write(path)
    assert read(path) == recording()


def test_a_recording_names_no_folder_of_the_machine() -> None:
    config = parse_config({"proposer": {"method": "draft_model", "model": "/home/somebody/draft"}}, "a test")
    assert "somebody" not in json.dumps(nameless(fixed(config, 8)).model_dump(mode="json"))


@pytest.mark.parametrize("path", bundled(), ids=lambda path: path.stem)
def test_bundled_recordings_are_small_and_tell_where_they_are_from(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    one = read(path)
    assert {"date", "arguments", "versions", "machine"} <= one.provenance.keys()
    assert {trace.kind for trace in one.traces} == set(KINDS)
    for trace in one.traces:
        for outcomes in trace.outcomes:
            assert all(len(outcome.nodes) <= outcome.drafted for outcome in outcomes)
