"""What all users found."""

import time
from datetime import UTC, datetime
from typing import Any

import requests

from loadtests.load.gauge import Gauge
from loadtests.options import slo_of, told, without_credentials
from loadtests.report.result import Result
from loadtests.server.counters import counts
from loadtests.stream.timing import Measures
from vllm_spec_plugin.tools.server_metrics import ExpositionError, ServerMetrics

_SECONDS = 10.0
_KEY = "stream_collector"


class ServerNotThereError(Exception):
    """The server does not answer as an OpenAI-compatible one; str() says how."""


class Collector:
    """What is found in one test.

    Attributes:
        model: the name of the model that is asked.
        users: how many there are.
        in_flight: requests that are being answered.
    """

    def __init__(self, host: str, api_key: str, model: str) -> None:
        """Asks the server for its model, if none is named, and what it counted so far.

        Raises:
            ServerNotThereError: it does not answer.
        """
        self._host = host.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.model = model or self._first_model()
        self._measures: dict[str, list[Measures]] = {}
        self.users, self.in_flight = Gauge(), Gauge()
        self._before = self._reading()
        self._began, self._started = datetime.now(UTC), time.perf_counter()

    def add(self, scenario: str, found: Measures) -> None:
        """Takes in a request."""
        self._measures.setdefault(scenario, []).append(found)

    def result(self, options: Any) -> Result:
        """All of it, when the test is over; asks the server what it has counted by now."""
        after = self._reading()
        return Result(
            model=self.model,
            host=without_credentials(self._host),
            began=self._began,
            started=self._started,
            options=told(options),
            slo=slo_of(options),
            measures=self._measures,
            users=self.users.changes,
            in_flight=self.in_flight.changes,
            server=counts(self._before, after) if self._before is not None and after is not None else None,
        )

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

    def _reading(self) -> ServerMetrics | None:
        """None where the server has no metrics."""
        try:
            answer = requests.get(f"{self._host}/metrics", headers=self._headers, timeout=_SECONDS)
            return ServerMetrics.parse(answer.text) if answer.ok else None
        except (requests.exceptions.RequestException, ExpositionError):
            return None


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


def has_collector(environment: Any) -> bool:
    """Whether a test has begun."""
    return hasattr(environment, _KEY)
