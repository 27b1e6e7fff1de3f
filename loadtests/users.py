"""Locust's users: a closed loop per scenario, and an open loop at a given rate."""

import itertools
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import gevent.pool
from locust import User, task
from pydantic import TypeAdapter

from loadtests.client import Measures, StreamError, StreamingClient, measure
from loadtests.options import extra_fields, prompts_of, request_of
from vllm_spec_tools.prompts import GivenPrompt

_numbers = itertools.count()


_MEASURES = TypeAdapter(dict[str, list[Measures]])


class Samples:
    """Measurements by the users of one process, and their way from Locust's workers to its master.

    Attributes:
        measures: by scenario, the requests that ended.
        sent: number of requests that were sent.
    """

    current: ClassVar["Samples"]

    def __init__(self) -> None:
        self.measures: dict[str, list[Measures]] = {}
        self.sent = 0

    @classmethod
    def begin(cls) -> "Samples":
        """Makes new samples the current ones of this process."""
        cls.current = cls()
        return cls.current

    def take(self) -> dict[str, Any]:
        """Removes everything and returns it as plain values, for a message to the master."""
        payload = {"measures": _MEASURES.dump_python(self.measures, mode="json"), "sent": self.sent}
        self.measures, self.sent = {}, 0
        return payload

    def merge(self, payload: Mapping[str, Any]) -> None:
        """Adds what a worker took."""
        for scenario, measures in _MEASURES.validate_python(payload["measures"]).items():
            self.measures.setdefault(scenario, []).extend(measures)
        self.sent += payload["sent"]


Samples.begin()


def send(environment: Any, client: StreamingClient, scenario: str, prompt: GivenPrompt) -> None:
    """Sends one request and records its measures, here and in Locust's statistics."""
    options, samples = environment.parsed_options, Samples.current
    fields = {"max_tokens": options.max_tokens, "temperature": options.temperature} | extra_fields(options)
    samples.sent += 1
    measures = measure(client.ask(*request_of(prompt, options.model, fields)))
    if options.api_key:
        # A server may quote the key that it refuses, and reports are public.
        measures = replace(measures, message=measures.message.replace(options.api_key, "***"))
    samples.measures.setdefault(scenario, []).append(measures)
    seconds = measures.ended - measures.started if measures.e2e is None else measures.e2e
    environment.events.request.fire(
        request_type="stream",
        name=scenario,
        response_time=seconds * 1000,
        response_length=measures.output_tokens or 0,
        exception=None
        if measures.error is None
        else StreamError(measures.error, f"{measures.error}: {measures.message}"),
        context={},
    )


class LoadUser(User):
    """A user with its own random numbers, by `--seed`, worker process, class and number."""

    abstract = True

    def on_start(self) -> None:
        """Seeds the user."""
        options, worker = self.environment.parsed_options, getattr(self.environment.runner, "worker_index", 0)
        self.rng = random.Random(f"{options.seed} {worker} {type(self).__name__} {next(_numbers)}")

    def new_client(self) -> StreamingClient:
        """A connection to the server under test."""
        options = self.environment.parsed_options
        return StreamingClient(self.environment.host, options.api_key, options.patience)


class ClosedLoopUser(LoadUser):
    """Sends a request, reads its response to the end, waits for the think time, and repeats."""

    abstract = True
    scenario: str
    weight = 2

    def on_start(self) -> None:
        """Opens the user's own connection."""
        super().on_start()
        self._client = self.new_client()
        self._prompts = prompts_of(self.scenario, self.environment.parsed_options.prompts)

    def on_stop(self) -> None:
        """Closes the connection."""
        self._client.close()

    def wait_time(self) -> float:
        """The think time, in seconds."""
        mean = self.environment.parsed_options.think
        return self.rng.expovariate(1 / mean) if mean else 0.0

    @task
    def send(self) -> None:
        """Sends one request."""
        send(self.environment, self._client, self.scenario, self.rng.choice(self._prompts))


class CodeCompletion(ClosedLoopUser):
    """Completes code."""

    weight = 4
    scenario = "code"


class CopyHeavyEdit(ClosedLoopUser):
    """Rewrites a text with small changes: most output can be copied from the prompt."""

    scenario = "edit"


class Extraction(ClosedLoopUser):
    """Extracts short answers from a longer text."""

    scenario = "extract"


class OpenChat(ClosedLoopUser):
    """Chats, through the chat API."""

    scenario = "chat"


SCENARIOS: tuple[type[ClosedLoopUser], ...] = (CodeCompletion, CopyHeavyEdit, Extraction, OpenChat)


class OpenLoop(LoadUser):
    """Sends requests of all scenarios as a Poisson process, without waiting for responses.

    The users of this class share `--rate` equally. A server too slow for the rate builds up a queue, which a closed
    loop cannot show.
    """

    def on_start(self) -> None:
        """Starts the arrivals."""
        super().on_start()
        options = self.environment.parsed_options
        self._rate = options.rate / options.rate_users
        self._due, self._has_begun = time.perf_counter(), False
        self._requests = gevent.pool.Group()
        self._prompts = {one.scenario: prompts_of(one.scenario, options.prompts) for one in SCENARIOS}
        self._weights = [one.weight for one in SCENARIOS]

    def on_stop(self) -> None:
        """Waits for the open responses as long as `--stop-timeout` says, then gives them up."""
        self._requests.join(timeout=self.environment.stop_timeout)
        self._requests.kill()

    def wait_time(self) -> float:
        """Seconds until the next arrival."""
        self._due += self.rng.expovariate(self._rate)
        return max(self._due - time.perf_counter(), 0)

    @task
    def arrive(self) -> None:
        """Sends one request. Locust runs a task before the first wait: that one is no arrival."""
        if not self._has_begun:
            self._has_begun = True
            return
        scenario = self.rng.choices(SCENARIOS, self._weights)[0].scenario
        self._requests.spawn(self._send, scenario, self.rng.choice(self._prompts[scenario]))

    def _send(self, scenario: str, prompt: GivenPrompt) -> None:
        client = self.new_client()
        try:
            send(self.environment, client, scenario, prompt)
        finally:
            client.close()
