"""What all users have in common."""

import itertools
import random

from locust import User

_numbers = itertools.count()


class LoadUser(User):
    """A user with random draws of its own, by `--seed`, its class and its number."""

    abstract = True

    def on_start(self) -> None:
        """Gets its draws."""
        self.rng = random.Random(f"{self.environment.parsed_options.seed} {type(self).__name__} {next(_numbers)}")
