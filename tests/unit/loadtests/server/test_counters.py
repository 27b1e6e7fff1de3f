"""What a server counted, by its `/metrics`."""

import pytest

from loadtests.server.counters import counts
from vllm_spec_plugin.tools.server_metrics import ExpositionError, ServerMetrics

TEXT = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {first}
vllm:generation_tokens_total{{engine="1",model_name="m"}} {second}
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {drafts}
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {drafted}
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
"""


def reading(first=0.0, second=0.0, drafts=0.0, drafted=0.0, accepted=0.0, running=0.0) -> ServerMetrics:
    return ServerMetrics.parse(
        TEXT.format(first=first, second=second, drafts=drafts, drafted=drafted, accepted=accepted, running=running)
    )


def test_counters_are_differences_and_gauges_are_not() -> None:
    found = counts(reading(10, 5, running=3), reading(110, 25, drafts=20, drafted=80, accepted=50, running=2))
    assert (found.output_tokens, found.drafts, found.running) == (120, 20, 2)
    assert (found.acceptance_rate, found.acceptance_length) == (50 / 80, 3.5)


def test_a_restarted_server_has_what_it_has_now() -> None:
    assert counts(reading(100, 5), reading(7, 0)).output_tokens == 7


def test_what_a_server_does_not_count_is_not_known() -> None:
    found = counts(ServerMetrics({}), ServerMetrics({}))
    assert (found.output_tokens, found.acceptance_rate, found.acceptance_length, found.kv_usage) == (None,) * 4


def test_without_drafts_there_is_no_acceptance() -> None:
    found = counts(reading(), reading(first=10))
    assert (found.drafts, found.acceptance_rate, found.acceptance_length) == (0, None, None)


@pytest.mark.parametrize("text", ["<html>\n<body a=1>", "vllm:x{a=", "vllm:x twelve"])
def test_anything_else_is_refused_with_words(text: str) -> None:
    with pytest.raises(ExpositionError, match="Prometheus' text format"):
        ServerMetrics.parse(text)
