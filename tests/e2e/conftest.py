"""Served engines with the plugin, one after the other, for all tests here."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.engine.arms import ENVIRONMENT as OF_ENGINES
from tests.engine.forks import ForkServer
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.serving import Server, serving_environment

CASCADE = str(Path(__file__).parent / "cascade.yaml")
NUM_DRAFTS = 4
MAX_MODEL_LEN = 1024
OPTIONS = (
    *("--max-model-len", str(MAX_MODEL_LEN), "--num-gpu-blocks-override", "128"),
    *("--per-request-spec-decode-metrics", "detailed", "--enforce-eager"),
)
# With fixed lengths drafts depend on the prediction and the text only, and on earlier text of the same salt.
GROUPED = """
proposer: {method: cascade, proposers: [{method: prediction}, {method: suffix, min_order: 4, shared: true}]}
draft_length: {policy: fixed, tokens: 8}
stream_granularity: fixed
"""
GROUP = 9


class ForkedServer(Server):
    """`vllm serve` in a fork of a process that has imported vLLM, which saves half a minute; stopped, it is killed."""

    def __init__(self, forks: ForkServer, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._forks = forks

    def command(self) -> list[str]:
        _, *words = super().command()
        return [*self._forks.python, "-m", "vllm.entrypoints.cli.main", *words]


def connect(server: Server) -> openai.OpenAI:
    """Returns a client of a server, which does not repeat failed requests."""
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)


def served_model(client: openai.OpenAI) -> str:
    """Returns the served model's name."""
    return client.models.list().data[0].id


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., ForkedServer]]:
    """Makes servers of the bundled target."""
    with tempfile.TemporaryDirectory() as folder:
        environment = serving_environment(model_path("target")) | {"PYTHONPATH": OF_ENGINES["PYTHONPATH"]}
        forks = ForkServer(Path(folder), environment)
        yield lambda *args, **kwargs: ForkedServer(forks, model_path("target"), *args, **kwargs)
        forks.stop()


@pytest.fixture(scope="package")
def server(serve: Callable[..., Server]) -> Iterator[Server]:
    """The bundled target, served with drafts."""
    with serve(CASCADE, extra_args=OPTIONS) as server:
        yield server


@pytest.fixture(scope="package")
def grouped(serve: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The bundled target, served with predictions and a stream of groups of `GROUP` tokens, beside the cascade."""
    path = tmp_path_factory.mktemp("grouped") / "plugin.yaml"
    path.write_text(GROUPED)
    assert load_config(path).stream_tokens == GROUP
    with serve(str(path), extra_args=OPTIONS) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    """An OpenAI client of that server, or of the module's own."""
    return connect(server)


@pytest.fixture(scope="module")
def model(client: openai.OpenAI) -> str:
    """The served model's name."""
    return served_model(client)
