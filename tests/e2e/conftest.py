"""One served engine with the plugin for all tests here."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from vllm_spec_plugin.demo import model_path
from vllm_spec_plugin.serving import Server

CONFIG = Path(__file__).parents[2] / "configs" / "ngram.yaml"
MAX_MODEL_LEN = 1024


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    """The bundled target, served with n-gram drafts."""
    with Server(model_path("target"), str(CONFIG), extra_args=("--max-model-len", str(MAX_MODEL_LEN))) as server:
        yield server


@pytest.fixture(scope="package")
def client(server: Server) -> openai.OpenAI:
    """An OpenAI client of that server."""
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="package")
def model(client: openai.OpenAI) -> str:
    """The served model's name."""
    return client.models.list().data[0].id
