"""Bounds drafts in steps with a prompt: verifying them delays the prompt's first token."""

# Maximum share of a step's time without drafts that verification may add in a step with a prompt.
MOST_DELAY = 0.15
# Half-life of an observation, in steps, and steps before anything is bounded.
_HALF_LIFE, _LEAST_STEPS = 256, 16
_KEPT = 0.5 ** (1 / _HALF_LIFE)


class FirstTokenBound:
    """Learns the cost per token of a step, and bounds drafts in steps with prompts.

    Fits seconds = fixed + slope * tokens by least squares of relative errors, forgetting exponentially. With weights
    w = 1 / seconds², slow and disturbed steps count little.
    """

    def __init__(self) -> None:
        """Starts without observations: nothing is bounded."""
        self._num_steps = 0
        # Sums of w, w * tokens, w * tokens², w * seconds and w * tokens * seconds.
        self._sums = (0.0,) * 5

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Updates the fit from one step; one without time is ignored.

        Args:
            num_tokens: tokens that the target computed.
            seconds: time of the step without drafting.
        """
        if num_tokens < 1 or seconds <= 0:
            return
        weight = 1 / seconds**2
        values = (1.0, num_tokens, num_tokens**2, seconds, num_tokens * seconds)
        self._sums = tuple([_KEPT * old + weight * new for old, new in zip(self._sums, values, strict=True)])
        self._num_steps += 1

    def max_drafts(self, num_tokens: int) -> int | None:
        """Returns the maximum draft tokens of a step with `num_tokens` other tokens; None without a known cost."""
        fixed, slope = self._fit()
        return int(MOST_DELAY * (fixed / slope + num_tokens)) if slope > 0 else None

    def _fit(self) -> tuple[float, float]:
        """Returns fixed seconds and seconds per token, not negative; zeros while they are unknown."""
        total, first, second, times, products = self._sums
        if self._num_steps < _LEAST_STEPS:
            return 0.0, 0.0
        spread = total * second - first**2
        slope = max((total * products - first * times) / spread, 0.0) if spread > 1e-9 * first**2 else 0.0
        return max((times - slope * first) / total, 0.0), slope


def share_out(num_tokens: int, num_requests: int) -> list[int]:
    """Returns [num_requests], equal shares of `num_tokens`; earlier requests get the remainder."""
    each, more = divmod(num_tokens, num_requests)
    return [each + (i < more) for i in range(num_requests)]
