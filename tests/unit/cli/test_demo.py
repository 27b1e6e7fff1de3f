"""`vllm-spec demo` refuses mistakes before a server starts."""

from pathlib import Path

import pytest

from tests.unit.cli.running import run


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise AssertionError("a server starts")

    monkeypatch.setattr("vllm_spec_tools.engines.serving.Server.start", start)


def test_mistakes_are_told_before_a_server_starts(tmp_path: Path) -> None:
    wrong = tmp_path / "plugin.yaml"
    wrong.write_text("proposer: {method: toy}\n")
    for options, message in (
        (["--config", tmp_path / "missing.yaml"], "missing.yaml"),
        (["--config", wrong], "got the text 'toy'"),
        (["--html", tmp_path / "no" / "a.html"], "--html"),
        (["--model", "./nothing"], "--model ./nothing: no such folder"),
    ):
        result = run("demo", *options)
        assert result.exit_code == 2
        assert message in result.stderr
