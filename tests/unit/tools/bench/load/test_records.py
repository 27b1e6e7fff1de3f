"""Jobs and answers travel between processes as JSON."""

import dataclasses
import json

from pydantic import TypeAdapter

from tests.unit.tools.bench.load.cases import run, steady
from vllm_spec_plugin.tools.bench.load.records import LoadAnswer, LoadJob, Output
from vllm_spec_plugin.tools.bench.load.texts import Texts
from vllm_spec_plugin.tools.bench.load.workloads import SWITCHING, Sizes, load_job


def test_a_job_arrives_as_it_was_sent() -> None:
    job = load_job(SWITCHING, 2, 0, Texts(("a", "b")), Sizes(), 3, is_warm_up=False)
    for sent in (job, dataclasses.replace(job, spec_tokens=2)):
        assert TypeAdapter(LoadJob).validate_python(json.loads(json.dumps(dataclasses.asdict(sent)))) == sent


def test_an_answer_arrives_as_it_was_sent() -> None:
    answer = run("a", [steady(10.0), steady(20.0, outputs=[Output([1, 2], True)])], counts=(1, 2, 3)).answer
    assert TypeAdapter(LoadAnswer).validate_python(json.loads(json.dumps(dataclasses.asdict(answer)))) == answer
