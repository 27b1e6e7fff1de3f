"""Recordings as files, and what is asked of engines to make one."""

import json
from pathlib import Path

import pytest

from tests.unit.tools.bench.replay.cases import recording
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.replay.record import KINDS, fixed, nameless, requests_of
from vllm_spec_plugin.tools.bench.replay.recording import bundled, read

MOST_BYTES = 200_000


def test_a_recording_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "recording.json"
    recording().write(path)
    assert read(path) == recording()


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 0}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "recording.json"
    path.write_text(text)
    with pytest.raises(UserError, match="bench record"):
        read(path)
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / "nothing.json")


def test_some_of_the_proposers_are_a_configuration_of_their_own() -> None:
    one = recording()
    assert one.methods == ("ngram", "draft_model")
    assert one.config_of((1,), "optimal", 3).proposer.method == "draft_model"
    assert [part.method for part in one.config_of((0, 1), "optimal", 3).proposers] == ["ngram", "draft_model"]
    assert one.config_of((0, 1), "optimal", 3).draft_length.tokens == 3


def test_a_recording_names_no_folder_of_the_machine() -> None:
    config = parse_config({"proposer": {"method": "draft_model", "model": "/home/somebody/draft"}}, "a test")
    assert "somebody" not in json.dumps(nameless(fixed(config, 8)).model_dump(mode="json"))


@pytest.mark.parametrize("kind", KINDS)
def test_requests_of_a_kind_differ(kind: str) -> None:
    requests = requests_of(kind, 30, 16)
    assert len({request.prompt for request in requests}) == 30
    assert {request.temperature > 0 for request in requests} == {kind == "hard"}


@pytest.mark.parametrize("path", bundled(), ids=lambda path: path.stem)
def test_bundled_recordings_are_small_and_tell_where_they_are_from(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    one = read(path)
    assert {"date", "arguments", "versions", "machine"} <= one.provenance.keys()
    assert {trace.kind for trace in one.traces} == set(KINDS)
    for trace in one.traces:
        for outcomes in trace.outcomes:
            assert all(len(outcome.nodes) <= outcome.drafted for outcome in outcomes)
