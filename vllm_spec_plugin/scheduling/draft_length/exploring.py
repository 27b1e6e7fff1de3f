"""Now and then doing what does not look best, to know whether it is, for a bounded share of the time."""

# Time served beyond this earns nothing more: a long phase in which all went well is no licence for a burst.
_MOST_SECONDS, _MOST_STEPS = 60.0, 400


class Purse:
    """Fills with a share of all time served, and pays for what is expected to cost more than it is worth.

    Args:
        share: of the time, from 0 (nothing is ever paid) to below 1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self.seconds = 0.0
        self._step_seconds = _MOST_SECONDS

    @property
    def capacity(self) -> float:
        """Most seconds that it holds."""
        return self._share * min(_MOST_SECONDS, _MOST_STEPS * self._step_seconds)

    def served(self, seconds: float) -> None:
        """Adds a step's time."""
        self._step_seconds += (seconds - self._step_seconds) / (16 if self._step_seconds < _MOST_SECONDS else 1)
        self.seconds = min(self.seconds + self._share * seconds, self.capacity)

    def can_pay(self, seconds: float) -> bool:
        """Whether it holds so much; a full one pays any price, and is in debt then."""
        return self.seconds > 0 and (seconds <= self.seconds or self.seconds >= self.capacity)

    def pay(self, seconds: float) -> None:
        """Takes that out."""
        self.seconds -= seconds
