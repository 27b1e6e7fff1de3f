"""A load test as JSON."""

from dataclasses import asdict
from typing import Any

from loadtests.report.result import Result
from loadtests.server.counters import ServerCounts


def figures(result: Result) -> dict[str, Any]:
    """All figures, in what `json.dumps` takes: of all requests, by scenario, and what the server counted meanwhile."""
    return {
        "model": result.model,
        "began": result.began.isoformat(timespec="seconds"),
        "options": {"host": result.host, **result.options},
        "all": result.total.as_json(),
        "scenarios": {name: summary.as_json() for name, summary in result.scenarios.items()},
        "server": None if result.server is None else _server(result.server),
    }


def _server(found: ServerCounts) -> dict[str, Any]:
    return asdict(found) | {"acceptance_rate": found.acceptance_rate, "acceptance_length": found.acceptance_length}
