"""Requests that predict their outputs."""

from vllm_spec_tools.certify.settings import predicting
from vllm_spec_tools.engines.jobs import CertifyRequest


def test_some_predictions_are_right_some_useless_and_some_requests_have_none() -> None:
    requests = [CertifyRequest((1,), {"seed": number}) for number in range(6)]
    found = predicting(requests, [[number, 7, 8] for number in range(5)])
    given = [request.params.get("extra_args") for request in found]
    assert given == [
        {"spec_prediction": [0, 7, 8]},
        {"spec_prediction": [8, 7, 1]},
        None,
        {"spec_prediction": [3, 7, 8]},
        {"spec_prediction": [8, 7, 4]},
        None,
    ]
    assert [request.params["seed"] for request in found] == list(range(6))
    assert all("extra_args" not in request.params for request in requests)
