"""Invented results of load tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.report.result import Result
from loadtests.server import ServerCounts
from loadtests.stream.summary import Slo
from loadtests.stream.timing import ErrorKind, Measures
from vllm_spec_tools.report.provenance import provenance

# By the clock of the measures; any will do.
STARTED = 5000.0
SERVER = ServerCounts(40.0, 400.0, 5100.0, 1000.0, 4000.0, 2500.0, 0.0, 0.25, 0.0, 0.0)


def answered(at: float, ttft: float = 0.2, tpot: float = 0.05, tokens: int = 21) -> Measures:
    """A request that was sent so many seconds after the start, whose tokens came two at a time after the first."""
    e2e = ttft + tpot * (tokens - 1)
    chunks = (1, *[2] * ((tokens - 1) // 2))
    return Measures(
        started=STARTED + at,
        ended=STARTED + at + e2e,
        prompt_tokens=10,
        output_tokens=tokens,
        ttft=ttft,
        e2e=e2e,
        tpot=tpot if tokens > 1 else None,
        gaps=(2 * tpot,) * (len(chunks) - 1),
        tokens_per_chunk=chunks,
        output_tokens_per_second=tokens / e2e,
    )


def failed(at: float, kind: ErrorKind = ErrorKind.CUT, message: str = "gone") -> Measures:
    return Measures(STARTED + at, STARTED + at + 0.5, kind, message)


def result(measures: Mapping[str, Sequence[Measures]], **more: Any) -> Result:
    """Builds the result of a test with these measures."""
    given: dict[str, Any] = {
        "model": "llama",
        "host": "http://localhost:8000",
        "started": STARTED,
        "options": {"num_users": 8, "run_time": None, "prompts": "", "temperature": 0.7},
        "slo": None,
        "sent": sum(map(len, measures.values())),
        "server": SERVER,
    }
    return Result(measures=measures, **given | more)


# TTFT 0.2 s and 0.4 s, TPOT 50 ms and 100 ms: 30 requests, of them 2 that failed.
MIXED = result(
    {
        "edit": [answered(0.5 * number, ttft=0.4, tpot=0.1) for number in range(14)],
        "chat": [
            *(answered(0.5 * number) for number in range(14)),
            failed(1.0),
            failed(2.0, ErrorKind.HTTP_5XX, "full"),
        ],
    },
    slo=Slo(ttft=0.3, tpot=0.06),
)


def origin(model: str = "llama") -> dict[str, Any]:
    return provenance(["--headless", "--users", "8"], 0, (), {"model": model}, "locust", ("locust",))
