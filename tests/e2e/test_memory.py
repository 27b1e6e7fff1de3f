"""A restarted server drafts from its first steps, by what the one before it learned."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import OPTIONS, connect, served_model
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

FILE = "proposer: {method: suffix}\ndraft_length: {memory: kept}\n"
PROMPT = "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n"
READ = "draft_length.memory: drafting begins with what"


def test_a_server_begins_with_what_the_last_one_learned(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The numbers are in a file beside plugin.yaml; outputs are those without them."""
    path, texts = tmp_path / "plugin.yaml", []
    path.write_text(FILE)
    for i in range(2):
        log = tmp_path / f"log{i}"
        with serve(path, extra_args=OPTIONS, environment={"VLLM_SPEC_MEMORY": "1"}, log_path=log) as server:
            client = connect(server)
            for temperature in (0.0, 1.5):
                answer = client.completions.create(
                    model=served_model(client),
                    prompt=PROMPT,
                    max_tokens=200,
                    temperature=temperature,
                    extra_body={"ignore_eos": True},
                )
                texts.append(answer.choices[0].text)
            [kept] = (tmp_path / "kept").iterdir()
            assert kept.suffix == ".json"
        assert log.read_text().count(READ) == i
    assert texts[0] == texts[2]
