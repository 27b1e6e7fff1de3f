"""Compares the acceptance of recent requests with the long-run mean."""

import math
from collections import deque

# Requests that count as recent; earlier ones from which on there is a long-run mean; and in how many its weight halves.
RECENT, LEAST_EARLIER, HALF_LIFE = 64, 256, 8192
# Minimum standard deviation over requests: rates of drafts that are all accepted vary too little for a test.
_LEAST_DEVIATION = 0.02


class AcceptanceDrift:
    """Follows the acceptance rates of ended requests, oldest first.

    Requests are nearly independent, their tokens are not: so each request counts once. The difference of the two means
    is in standard errors, z = (m_recent - m_earlier) / (s sqrt(1 / n_recent + 1 / n_earlier)), with s the standard
    deviation over earlier requests. Where nothing changes, z is below -3 for one in 740 sets of recent requests.
    """

    def __init__(self) -> None:
        """Starts without requests."""
        self._recent: deque[float] = deque()
        # Of earlier requests: fading sums of weights, of rates and of their squares.
        self._num_earlier, self._weight, self._sum, self._squares = 0, 0.0, 0.0, 0.0

    def ended(self, rate: float) -> None:
        """Adds a request.

        Args:
            rate: its accepted draft tokens over its verified ones.
        """
        self._recent.append(rate)
        if len(self._recent) > RECENT:
            earlier, kept = self._recent.popleft(), 0.5 ** (1 / HALF_LIFE)
            self._num_earlier += 1
            self._weight = kept * self._weight + 1
            self._sum = kept * self._sum + earlier
            self._squares = kept * self._squares + earlier**2

    @property
    def sigmas(self) -> float | None:
        """z, below 0 if acceptance fell; None before there are enough requests."""
        if self._num_earlier < LEAST_EARLIER:
            return None
        mean = self._sum / self._weight
        deviation = max(math.sqrt(max(self._squares / self._weight - mean**2, 0.0)), _LEAST_DEVIATION)
        recent = sum(self._recent) / RECENT
        return (recent - mean) / (deviation * math.sqrt(1 / RECENT + 1 / self._weight))
