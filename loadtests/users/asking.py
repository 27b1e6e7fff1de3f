"""One request of a user, and who is told of it."""

from dataclasses import replace
from typing import Any

from loadtests.collector import collector_of
from loadtests.scenarios.prompts import Prompt
from loadtests.stream.client import StreamingClient
from loadtests.stream.timing import measure


class StreamError(Exception):
    """What Locust lists as a failure."""


def client_of(environment: Any) -> StreamingClient:
    """A new client of the server that is tested; to be closed by who asked for it."""
    options = environment.parsed_options
    return StreamingClient(environment.host, options.api_key, options.patience)


def ask(environment: Any, client: StreamingClient, scenario: str, prompt: Prompt) -> None:
    """Asks for one stream, and tells the collector and Locust's statistics."""
    options, collector = environment.parsed_options, collector_of(environment)
    given = {"max_tokens": options.max_tokens, "temperature": options.temperature}
    collector.in_flight.add(1)
    try:
        found = measure(client.ask(prompt.path, prompt.body(collector.model, given)))
    finally:
        # Also where the user is stopped meanwhile.
        collector.in_flight.add(-1)
    if options.api_key:
        # A server may say which key it refuses, and reports are for others to read.
        found = replace(found, message=found.message.replace(options.api_key, "***"))
    collector.add(scenario, found)
    environment.events.request.fire(
        request_type="stream",
        name=scenario,
        response_time=((found.ended - found.started) if found.e2e is None else found.e2e) * 1000,
        response_length=found.output_tokens or 0,
        exception=None if found.error is None else StreamError(f"{found.error}: {found.message}"),
        context={},
    )
