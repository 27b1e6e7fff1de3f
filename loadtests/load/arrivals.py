"""When requests arrive that do not wait for each other. Pure."""

import random
from collections.abc import Iterator


def poisson(rate: float, rng: random.Random) -> Iterator[float]:
    """Seconds from each arrival to the next, endless: a Poisson process, as of users who know nothing of each other.

    An open loop: who arrives does not wait until others are served. A server that is too slow for the rate gets ever
    longer queues, which users in a closed loop, who ask again when they have been answered, never show.

    Args:
        rate: arrivals per second, above 0.
        rng: draws them.
    """
    while True:
        yield rng.expovariate(rate)
