"""Every field of vLLM's requests has a verdict, and the tests of served fields send all of them."""

import dataclasses

from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.sampling_params import SamplingParams, StructuredOutputsParams

from tests.e2e.fuzz import cases
from tests.e2e.fuzz.servers import SERVERS
from tests.parameters.fields import FIELDS, STRUCTURES, Verdict
from tests.parameters.values import FIELDS_WITH_VALUES
from vllm_spec_plugin.compat.version import VERSION
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.gate.ways import Way, way_of

REQUESTS = (ChatCompletionRequest, CompletionRequest, ResponsesRequest)
OF_REQUESTS = {name for request in REQUESTS for name in request.model_fields}
OF_VLLM = OF_REQUESTS | set(SamplingParams.__struct_fields__)
OF_STRUCTURES = {field.name for field in dataclasses.fields(StructuredOutputsParams)}


def test_each_field_of_vllms_requests_has_a_verdict():
    assert OF_VLLM - FIELDS.keys() == set()
    assert OF_STRUCTURES - STRUCTURES.keys() == set()


def test_no_verdict_is_of_a_field_that_vllm_has_not():
    here = {name for name, field in FIELDS.items() if field.since <= VERSION}
    assert here - OF_VLLM == set()
    assert STRUCTURES.keys() - OF_STRUCTURES == set()


def drawn(number=4000):
    """Fields and structures of drawn requests."""
    drawing = cases.Cases(0, [[1, 2, 3], list(range(9, 300))], ["def name(self):\n", "x"], 4)
    found = [drawing.draw(["prediction"], takes_predictions=True) for _ in range(number)]
    bodies = [case.with_drafts for case in found]
    return {name for body in bodies for name in body}, {
        name for body in bodies for name in body.get("structured_outputs", {})
    }


def test_the_fuzz_sends_every_served_field_of_requests():
    names, structures = drawn()
    served = {name for name, field in FIELDS.items() if field.verdict == Verdict.SERVED}
    assert served & OF_REQUESTS - names == set()
    assert {name for name, field in STRUCTURES.items() if field.verdict == Verdict.SERVED} - structures == set()
    assert names - {"prediction"} <= FIELDS.keys()


def test_the_engine_test_has_a_value_for_every_served_field_of_sampling_params():
    served = {name for name, field in FIELDS.items() if Verdict.SERVED in (field.verdict, field.by_vllm)}
    on_v2_only = {name for name, field in FIELDS.items() if field.verdict == Verdict.REFUSED}
    assert served & set(SamplingParams.__struct_fields__) - on_v2_only == FIELDS_WITH_VALUES


def test_every_way_to_draft_is_fuzzed():
    """A CPU has no asynchronous scheduling."""
    not_here = {Way.VLLM_ASYNC, Way.HEADS_ASYNC}
    assert {served.way for served in SERVERS.values()} == set(Way) - not_here
    for served in SERVERS.values():
        config = parse_config(served.config, "a.yaml")
        assert way_of(config, is_v2=served.runner == "v2", is_async=False) == served.way
