"""The bundled heads."""

import pytest

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.medusa.checkpoint import read_heads_config
from vllm_spec_tools.planner.candidates import Heads


@pytest.fixture(scope="session")
def heads() -> Heads:
    folder = str(model_path("medusa"))
    return Heads(folder, read_heads_config(folder))
