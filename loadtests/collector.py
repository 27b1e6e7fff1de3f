"""What all users found, and the report at the end."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import requests

from loadtests.options import slo_of
from loadtests.server.counters import ExpositionError, Reading, ServerCounts, counts
from loadtests.stream.summary import summarise
from loadtests.stream.timing import Measures

_SECONDS = 10.0
_KEY = "stream_collector"


class ServerNotThereError(Exception):
    """The server does not answer as an OpenAI-compatible one; str() says how."""


class Collector:
    """Figures of one test.

    Attributes:
        model: the name of the model that is asked.
        measures: of all requests, by scenario.
    """

    def __init__(self, host: str, api_key: str, model: str) -> None:
        """Asks the server for its model, if none is named, and what it counted so far.

        Raises:
            ServerNotThereError: it does not answer.
        """
        self._host = host.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.model = model or self._first_model()
        self.measures: dict[str, list[Measures]] = {}
        self._before = self._reading()

    def add(self, scenario: str, found: Measures) -> None:
        """Takes in a request."""
        self.measures.setdefault(scenario, []).append(found)

    def report(self, options: Any) -> dict[str, Any]:
        """All figures, as JSON: of all requests, by scenario, and what the server counted meanwhile."""
        slo = slo_of(options)
        everything = [one for of_scenario in self.measures.values() for one in of_scenario]
        after = self._reading()
        server = counts(self._before, after) if self._before is not None and after is not None else None
        return {
            "model": self.model,
            "options": {key: value for key, value in vars(options).items() if key in _OPTIONS},
            "all": summarise(everything, slo).as_json(),
            "scenarios": {name: summarise(found, slo).as_json() for name, found in sorted(self.measures.items())},
            "server": None if server is None else _server(server),
        }

    def _first_model(self) -> str:
        url = f"{self._host}/v1/models"
        try:
            answer = requests.get(url, headers=self._headers, timeout=_SECONDS)
            answer.raise_for_status()
            return str(answer.json()["data"][0]["id"])
        except (requests.exceptions.RequestException, LookupError, TypeError, ValueError) as error:
            raise ServerNotThereError(
                f"{url} does not name a model ({error}); is the server up, is --host right?"
            ) from None

    def _reading(self) -> Reading | None:
        """None where the server has no metrics."""
        try:
            answer = requests.get(f"{self._host}/metrics", headers=self._headers, timeout=_SECONDS)
            return Reading.of(answer.text) if answer.ok else None
        except (requests.exceptions.RequestException, ExpositionError):
            return None


_OPTIONS = (
    "host",
    "num_users",
    "run_time",
    "spawn_rate",
    "max_tokens",
    "temperature",
    "prompts",
    "think",
    "rate",
    "seed",
)


def _server(found: ServerCounts) -> Mapping[str, Any]:
    return asdict(found) | {"acceptance_rate": found.acceptance_rate, "acceptance_length": found.acceptance_length}


def begin(environment: Any) -> None:
    """Makes the collector of a test that begins.

    Raises:
        ServerNotThereError: the server does not answer.
    """
    options = environment.parsed_options
    setattr(environment, _KEY, Collector(environment.host, options.api_key, options.model))


def collector_of(environment: Any) -> Collector:
    """That of the test that runs."""
    found: Collector = getattr(environment, _KEY)
    return found


def write(environment: Any) -> None:
    """Writes the report, if one is wanted and there was a test."""
    options, collector = environment.parsed_options, getattr(environment, _KEY, None)
    if options.report and collector is not None:
        text = json.dumps(collector.report(options), indent=1) + "\n"
        Path(options.report).write_text(text, encoding="utf-8")
