"""A server whose environment keeps the plugin out: it serves without speculation, and requests need no change."""

from collections.abc import Callable
from pathlib import Path

import openai
import pytest

from tests.e2e.conftest import connect, served_model
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

# The file is not read: a broken one must not stop a server either.
BROKEN = "proposer: {method: none}"
WARNING = "VLLM_SPEC_PLUGIN=0: serving WITHOUT speculation"


@pytest.mark.parametrize("switch", ["VLLM_SPEC_PLUGIN", pytest.param("VLLM_PLUGINS", marks=pytest.mark.full)])
def test_a_plugin_yaml_serves_without_speculation(serve: Callable[..., Server], tmp_path: Path, switch: str) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text(BROKEN)
    # vLLM's list of plugins keeps out all of the plugin's code, so only this option can name a file.
    is_list = switch == "VLLM_PLUGINS"
    extra = ("--additional-config", f'{{"vllm_spec_plugin": "{path}"}}') if is_list else ()
    environment = {switch: "another" if is_list else "0"}
    log = tmp_path / "log"
    with serve(None if is_list else path, extra_args=extra, environment=environment, log_path=log) as server:
        client = connect(server)
        body: dict[str, object] = {
            "vllm_xargs": {"spec_method": "suffix", "spec_tokens": 3},
            "prediction": {"type": "content", "content": "    return a - b\n"},
        }
        bodies: list[dict[str, object]] = [{}, body]
        bodies += [{"vllm_xargs": {"spec": "off"}}, {"vllm_xargs": {"spec_prediction": "a"}}]
        assert len({ask(client, served_model(client), each) for each in bodies}) == 1
        assert not [name for name in server.metrics() if "spec" in name]
    assert log.read_text().count(WARNING) == (0 if is_list else 1)


def ask(client: openai.OpenAI, model: str, body: dict[str, object]) -> str:
    prompt = "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n"
    answer = client.completions.create(model=model, prompt=prompt, max_tokens=16, temperature=0, extra_body=body)
    return answer.choices[0].text
