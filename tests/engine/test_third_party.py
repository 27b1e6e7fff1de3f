"""The proposer of CONTRIBUTING.md, installed as another distribution, drafts in a real engine and stays exact."""

import dataclasses
import os
from pathlib import Path

import pytest
import yaml

from tests.engine import texts
from tests.engine.arms import ENVIRONMENT, Arms, Engine
from tests.engine.exact import Reference
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.sizes import is_full
from tests.third_party import install_example
from vllm_spec_tools.engines.jobs import EngineProcess

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("config", ["bigram", *(["member"] if is_full() else [])])
def test_greedy_output_is_that_without_speculation(
    config: str, arms: Arms, reference: Reference, tmp_path: Path
) -> None:
    bigram = {"method": "bigram", "window": 256}
    ngram = {"method": "ngram", "min_order": 5}
    proposer = bigram if config == "bigram" else {"method": "cascade", "proposers": [ngram, bigram]}
    sections = {"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": 4}}
    path = tmp_path / "plugin.yaml"
    path.write_text(yaml.safe_dump(sections))
    site = tmp_path / "site"
    site.mkdir()
    search = os.pathsep.join([str(install_example(site)), ENVIRONMENT["PYTHONPATH"]])
    prompts = texts.sources(reference, 16, 300)
    job = greedy_job(prompts, 48)
    engine = Engine()
    plain = arms.run(engine, job)
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": search}
    served = EngineProcess(
        dataclasses.replace(engine, config=str(path)).arguments(),
        tmp_path / "arm",
        environment,
        python=arms.python(environment),
    )
    try:
        result = served.run(job)
    finally:
        served.stop()
    assert_same_tokens(reference, prompts, result, plain)
    assert min(result.accepted, result.rejected) > 50
