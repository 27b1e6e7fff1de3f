"""Served engines with the plugin, one after the other, for all tests here."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.e2e import live_memory
from tests.fixed_length import fixed_length
from tests.sizes import is_full
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.serving import Server

CASCADE = str(Path(__file__).parent / "cascade.yaml")
NUM_DRAFTS = {"ngram": 4, "cascade": 4, "medusa_tree": 5}
MAX_MODEL_LEN = 1024
# A worker's memory grows until each KV block has been written once, and until oneDNN has kept as many matrix
# products, one for each number of tokens, as it may (also without speculation). With few of both this ends soon.
ENVIRONMENT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1"}
OPTIONS = (
    *("--max-model-len", str(MAX_MODEL_LEN), "--num-gpu-blocks-override", "128"),
    *("--per-request-spec-decode-metrics", "detailed"),
)
# With fixed lengths drafts depend on the prediction and the text only, and on earlier text of the same salt.
GROUPED = """
proposer: {method: cascade, proposers: [{method: prediction}, {method: suffix, min_order: 4, shared: true}]}
draft_length: {policy: fixed, tokens: 8}
stream_granularity: fixed
"""
GROUP = 9


def connect(server: Server) -> openai.OpenAI:
    """Returns a client of a server, which does not repeat failed requests."""
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)


def served_model(client: openai.OpenAI) -> str:
    """Returns the served model's name."""
    return client.models.list().data[0].id


# The cascade includes what the others have by themselves.
@pytest.fixture(scope="package", params=["cascade", *(["medusa_tree", "ngram"] if is_full() else [])])
def method(request: pytest.FixtureRequest) -> str:
    """The method of drafting."""
    return str(request.param)


@pytest.fixture(scope="package")
def memory_folder() -> Iterator[Path]:
    """The folder of sockets on which the served engine's processes report their memory."""
    # Not pytest's own: paths of sockets are 107 characters at most.
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="package")
def server(method: str, memory_folder: Path) -> Iterator[Server]:
    """The bundled target, served with drafts."""
    with Server(
        model_path("target"),
        CASCADE if method == "cascade" else fixed_length(method, NUM_DRAFTS[method]),
        extra_args=OPTIONS,
        environment=ENVIRONMENT | live_memory.environment(memory_folder),
    ) as server:
        yield server


@pytest.fixture(scope="package")
def grouped(method: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The bundled target, served with predictions and a stream of groups of `GROUP` tokens, beside the cascade."""
    if method != "cascade":
        pytest.skip("does not depend on the method of `server`")
    path = tmp_path_factory.mktemp("grouped") / "plugin.yaml"
    path.write_text(GROUPED)
    assert load_config(path).stream_tokens == GROUP
    with Server(model_path("target"), str(path), extra_args=OPTIONS, environment=ENVIRONMENT) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    """An OpenAI client of that server, or of the module's own."""
    return connect(server)


@pytest.fixture(scope="module")
def model(client: openai.OpenAI) -> str:
    """The served model's name."""
    return served_model(client)
