"""An open loop: requests that arrive whether earlier ones were answered or not."""

import time
from collections.abc import Iterator

import gevent.pool
from locust import task

from loadtests.load.arrivals import poisson
from loadtests.scenarios.prompts import Prompt, prompts_of
from loadtests.users.asking import ask, client_of
from loadtests.users.closed import SCENARIOS
from loadtests.users.user import LoadUser


class OpenLoop(LoadUser):
    """All scenarios' requests, by their weights, at `--rate` requests per second.

    Locust's number of users is that of such sources: with one of them arrivals are a Poisson process of that rate.
    """

    def on_start(self) -> None:
        """Begins to draw arrivals."""
        super().on_start()
        options = self.environment.parsed_options
        self._gaps: Iterator[float] = poisson(options.rate, self.rng)
        self._due = time.perf_counter()
        self._requests = gevent.pool.Group()
        self._prompts = {one.scenario: prompts_of(one.scenario, options.prompts) for one in SCENARIOS}

    def on_stop(self) -> None:
        """Gives up what is not answered."""
        super().on_stop()
        self._requests.kill()

    @task
    def arrive(self) -> None:
        """Waits for the next arrival and lets it go its way."""
        self._due += next(self._gaps)
        gevent.sleep(max(self._due - time.perf_counter(), 0))
        chosen = self.rng.choices(SCENARIOS, [one.weight for one in SCENARIOS])[0].scenario
        self._requests.spawn(self._once, chosen, self.rng.choice(self._prompts[chosen]))

    def _once(self, scenario: str, prompt: Prompt) -> None:
        client = client_of(self.environment)
        try:
            ask(self.environment, client, scenario, prompt)
        finally:
            client.close()
