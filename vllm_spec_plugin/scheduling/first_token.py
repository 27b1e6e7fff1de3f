"""Bounds drafts in steps with a prompt: verifying and drafting delay the prompt's first token."""

# Maximum shares of a step's time without drafts that verification and drafting may add in a step with a prompt.
MOST_DELAY, MOST_DRAFTING = 0.15, 0.1
# Half-life of an observation, in steps, and steps before anything is bounded.
_HALF_LIFE, _LEAST_STEPS = 256, 16
_KEPT = 0.5 ** (1 / _HALF_LIFE)


class FirstTokenBound:
    """Learns the cost per token of a step and of its drafting, and bounds drafts in steps with prompts."""

    def __init__(self) -> None:
        """Starts without observations: nothing is bounded."""
        self._step, self._drafting = _Line(), _Line()

    def observe(self, num_tokens: int, seconds: float, drafting_seconds: float = 0.0) -> None:
        """Updates the estimates from one step.

        Args:
            num_tokens: tokens that the target computed.
            seconds: time of the step without drafting.
            drafting_seconds: time of drafting; 0 if nothing was drafted.
        """
        self._step.observe(num_tokens, seconds)
        self._drafting.observe(num_tokens, drafting_seconds)

    def max_drafts(self, num_tokens: int) -> int | None:
        """Returns the maximum draft tokens of a step with `num_tokens` other tokens; None without a known cost."""
        fixed, slope = self._step.fit()
        return int(MOST_DELAY * (fixed / slope + num_tokens)) if slope > 0 else None

    def allows_drafting(self, num_tokens: int) -> bool:
        """Whether a step of `num_tokens` tokens that outputs a first token may draft."""
        fixed, slope = self._step.fit()
        own_fixed, own_slope = self._drafting.fit()
        seconds = fixed + slope * num_tokens
        return seconds <= 0 or own_fixed + own_slope * num_tokens <= MOST_DRAFTING * seconds


class _Line:
    """Fits seconds = fixed + slope * tokens by least squares of relative errors, forgetting exponentially.

    With weights w = 1 / seconds², slow and disturbed steps count little.
    """

    def __init__(self) -> None:
        self._num_steps = 0
        # Sums of w, w * tokens, w * tokens², w * seconds and w * tokens * seconds.
        self._sums = (0.0,) * 5

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Updates the fit; observations without time are ignored."""
        if num_tokens < 1 or seconds <= 0:
            return
        weight = 1 / seconds**2
        values = (1.0, num_tokens, num_tokens**2, seconds, num_tokens * seconds)
        self._sums = tuple([_KEPT * old + weight * new for old, new in zip(self._sums, values, strict=True)])
        self._num_steps += 1

    def fit(self) -> tuple[float, float]:
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
