"""Samples of workers, merged by their master."""

import json

import pytest

from loadtests.samples import Samples
from loadtests.stream.timing import ErrorKind, Measures

SERVED = Measures(1.0, 2.0, output_tokens=3, ttft=0.5, e2e=0.9, tpot=0.2, gaps=(0.2, 0.2), tokens_per_chunk=(1, 2))
FAILED = Measures(1.5, 2.0, ErrorKind.CUT, "gone")


def test_samples_arrive_whole_and_on_the_masters_clock() -> None:
    worker, master = Samples(), Samples()
    worker.add("chat", SERVED)
    worker.add("chat", FAILED)
    worker.sent += 3
    # Plain values, as Locust sends them; the clock of this worker lacks 100 s more to the wall clock.
    payload = json.loads(json.dumps(worker.take()))
    payload["offset"] += 100
    began = worker.take()
    master.merge(payload)
    served, failed = master.measures["chat"]
    assert (served.started, served.ended) == pytest.approx((101.0, 102.0), abs=0.1)
    assert (served.ttft, served.gaps, served.tokens_per_chunk) == (0.5, (0.2, 0.2), (1, 2))
    assert (failed.error, failed.message) == (ErrorKind.CUT, "gone")
    assert (master.sent, began["measures"], began["sent"]) == (3, {}, 0)
