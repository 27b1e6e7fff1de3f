"""Scrapes of a server's `/metrics`."""

import pytest

from vllm_spec_tools.engines.server_metrics import ExpositionError, ServerMetrics

TEXT = """\
# TYPE errors_total counter
errors_total{engine="0",reason="raised"} 3.0
errors_total{engine="1",reason="raised"} 4.0
errors_total{engine="0",reason="wrong_type"} 0.0
# TYPE seconds histogram
seconds_bucket{le="1"} 1
seconds_bucket{le="+Inf"} 2
seconds_sum 3
seconds_count 2
"""


def test_samples_are_summed_over_labels_and_histogram_buckets_are_left_out() -> None:
    found = ServerMetrics.parse(TEXT)
    assert found.totals == {"errors_total": 7.0, "seconds_sum": 3.0, "seconds_count": 2.0}
    assert found.by_label("errors_total", "reason") == {"raised": 7.0, "wrong_type": 0.0}


def test_the_increase_of_a_new_a_restarted_and_a_missing_counter() -> None:
    before, after = (
        ServerMetrics({"grown": 3.0, "restarted": 9.0}),
        ServerMetrics({"grown": 5.0, "restarted": 2.0, "new": 4.0}),
    )
    assert [after.increase(before, name) for name in ("grown", "restarted", "new", "missing")] == [2.0, 2.0, 4.0, None]


@pytest.mark.parametrize("text", ["<html>\n<body a=1>", "x{a=", "x twelve"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ExpositionError, match="Prometheus' text format"):
        ServerMetrics.parse(text)
