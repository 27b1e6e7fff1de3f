"""The traffic: by workload, and in a closed loop."""

import pytest

from vllm_spec_tools.bench.records import LoadRequest
from vllm_spec_tools.planner.traffic import batch_job, load_job, workloads_of

REQUESTS = [LoadRequest("edit", f"text {number}", 0.0, 20, "p" * number) for number in range(3)]


def test_requests_are_gathered_by_workload_and_temperature_with_their_predictions() -> None:
    requests = [
        LoadRequest("edit", "a", 0.0, 64, "p"),
        LoadRequest("chat", "b", 0.7, 64),
        LoadRequest("chat", "c", 1.0, 64),
        LoadRequest("edit", "d", 0.0, 48),
    ]
    edit, warm, hot = workloads_of(requests)
    assert (edit.name, edit.share, edit.num_tokens, edit.texts) == ("edit", 0.5, 56, ("a", "d"))
    assert (warm.name, warm.temperature) == ("chat, T = 0.7", 0.7)
    assert (hot.name, hot.share) == ("chat, T = 1", 0.25)
    assert (edit.predictions, warm.predictions) == (("p", ""), ())


def test_schemas_stay_with_their_prompts() -> None:
    requests = [LoadRequest("json", f"text {i}", 0.0, 20, schema=f'{{"enum": [{i}]}}' if i else "") for i in range(3)]
    [workload] = workloads_of(requests)
    given = {request.prompt: request.schema for request in requests}
    assert workload.schemas == tuple(given.values())
    for job in (batch_job(workload, 2, 1, 0, 20), load_job(requests, 2, 1, 0, 4)):
        sent = job.phases[0].requests
        assert {request.prompt: request.schema for request in sent}.items() <= given.items()
        assert any(request.schema for request in sent)
    [free] = workloads_of(REQUESTS)
    assert free.schemas == ()
    assert not any(request.schema for request in batch_job(free, 2, 1, 0, 20).phases[0].requests)


def test_every_request_comes_before_one_comes_again_and_lengths_differ() -> None:
    job = load_job(REQUESTS, 2, 0, 0, 4)
    requests = job.phases[0].requests
    assert {(one.prompt, one.prediction) for one in requests[:3]} == {(one.prompt, one.prediction) for one in REQUESTS}
    lengths = {request.num_tokens for request in requests}
    assert len(lengths) > 3
    assert min(lengths) >= 10
    assert max(lengths) <= 30
    mean = sum(request.num_tokens for request in requests) / len(requests)
    assert job.phases[0].num_tokens == pytest.approx(2 * 4 * mean, abs=1)
