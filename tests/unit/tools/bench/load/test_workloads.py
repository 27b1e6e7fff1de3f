"""Tests the prompts of the streams."""

import json
from typing import Any

import pytest

from vllm_spec_tools.bench.load.workloads import (
    BEGINNINGS,
    EASY,
    HARD,
    JSON,
    MIXED,
    SWITCHING,
    WORKLOADS,
    LoadSizes,
    load_job,
)
from vllm_spec_tools.bench.prompts import STRUCTURED
from vllm_spec_tools.bench.records import LoadJob

SIZES = LoadSizes(request_tokens=40, stream_tokens=100, min_total_tokens=300, phase_tokens=400, hard_temperature=1.25)


def job(workload: str, streams: int, number: int = 0, is_warm_up: bool = False) -> LoadJob:
    return load_job(workload, streams, number, BEGINNINGS, SIZES, 7, is_warm_up=is_warm_up)


@pytest.mark.parametrize(("streams", "tokens"), [(1, 300), (8, 800), (32, 3200)])
def test_a_run_has_requests_enough_without_one_that_comes_twice(streams: int, tokens: int) -> None:
    [phase] = job(MIXED, streams).phases
    assert phase.num_tokens == tokens
    assert len({request.prompt for request in phase.requests}) == len(phase.requests) > streams
    # Those in flight at the end are not through.
    assert sum(request.num_tokens for request in phase.requests) > 1.3 * tokens


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_round_is_the_same_for_everybody_and_another_one_is_not(workload: str) -> None:
    assert job(workload, 4, 1) == job(workload, 4, 1)
    assert job(workload, 4, 1).phases != job(workload, 4, 2).phases
    assert (job(workload, 4).seed, job(workload, 4, 2).seed) == (7, 9)


def test_switching_turns_all_streams_at_once_with_a_request_each() -> None:
    phases = job(SWITCHING, 4).phases
    assert [{request.kind for request in phase.requests} for phase in phases] == [{EASY}, {HARD}, {EASY}]
    for phase in phases:
        assert phase.num_tokens == 4 * 400
        assert len({request.prompt for request in phase.requests}) == 4
        # Also one who is twice as fast as the others does not end before the phase does.
        assert all(request.num_tokens == 2 * 400 for request in phase.requests)


@pytest.mark.parametrize("streams", [1, 8, 32])
def test_structured_outputs_have_different_prompts_and_a_schema_of_several_keys(streams: int) -> None:
    requests = job(JSON, streams).phases[0].requests
    assert len({request.prompt for request in requests}) == len(requests)
    assert {(request.kind, request.temperature, request.num_tokens) for request in requests} == {(JSON, 0.0, 160)}
    schemas = {request.schema for request in requests}
    assert len(schemas) > 3
    for schema in map(json.loads, schemas):
        assert len(schema["properties"]) >= 3
        assert "enum" in str(schema)
    # A prompt has its schema in all rounds.
    later = job(JSON, streams, number=4).phases[0].requests
    assert {one.prompt.split(": ")[1]: one.schema for one in later} == {
        one.prompt.split(": ")[1]: one.schema for one in requests
    }


def test_schemas_bound_strings_numbers_and_lists() -> None:
    """A small model would go on for as long as it may."""

    def bounded(schema: dict[str, Any]) -> bool:
        if "enum" in schema:
            return True
        if schema["type"] == "object":
            return all(map(bounded, schema["properties"].values())) and not schema["additionalProperties"]
        if schema["type"] == "array":
            return "maxItems" in schema and bounded(schema["items"])
        return schema["type"] == "boolean" or "maximum" in schema or "{1,12}" in schema["pattern"]

    assert all(bounded(json.loads(schema)) for _, schema in STRUCTURED)
