"""What all users have in common."""

import itertools
import random

from locust import User

from loadtests.collector import collector_of

_numbers = itertools.count()


class LoadUser(User):
    """A user who is counted, with random draws of its own, by `--seed`, its class and its number."""

    abstract = True

    def on_start(self) -> None:
        """Comes."""
        self.rng = random.Random(f"{self.environment.parsed_options.seed} {type(self).__name__} {next(_numbers)}")
        collector_of(self.environment).users.add(1)

    def on_stop(self) -> None:
        """Leaves."""
        collector_of(self.environment).users.add(-1)
