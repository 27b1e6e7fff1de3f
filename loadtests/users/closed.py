"""A closed loop: users that ask again when they have been answered."""

from locust import task

from loadtests.scenarios.prompts import prompts_of
from loadtests.users.asking import ask, client_of
from loadtests.users.user import LoadUser


class StreamingUser(LoadUser):
    """Somebody who asks, reads the answer to its end, thinks, and asks again: a closed loop.

    Attributes:
        scenario: the name of its prompts' file, and in statistics.
    """

    abstract = True
    scenario: str

    def on_start(self) -> None:
        """Gets a connection of its own, and its own order of prompts."""
        super().on_start()
        self._client = client_of(self.environment)
        self._prompts = prompts_of(self.scenario, self.environment.parsed_options.prompts)

    def on_stop(self) -> None:
        """Closes its connection."""
        super().on_stop()
        self._client.close()

    def wait_time(self) -> float:
        """Seconds of thinking."""
        mean = self.environment.parsed_options.think
        return self.rng.expovariate(1 / mean) if mean else 0.0

    @task
    def ask(self) -> None:
        """Asks for one stream."""
        ask(self.environment, self._client, self.scenario, self.rng.choice(self._prompts))


class CodeCompletion(StreamingUser):
    """Goes on with code: much of it is said for the first time."""

    weight = 4
    scenario = "code"


class CopyHeavyEdit(StreamingUser):
    """Has a text written again with small changes: most of it can be copied."""

    weight = 2
    scenario = "edit"


class Extraction(StreamingUser):
    """Wants short answers out of a longer text."""

    weight = 2
    scenario = "extract"


class OpenChat(StreamingUser):
    """Talks, through the chat API."""

    weight = 2
    scenario = "chat"


SCENARIOS: tuple[type[StreamingUser], ...] = (CodeCompletion, CopyHeavyEdit, Extraction, OpenChat)
