"""Windows of measured steps for the comparison, and their robust mean."""

import math
from typing import NamedTuple

import numpy as np

from vllm_spec_plugin.jit import Floats

# Minimum noise of a step, as a share of a step without drafts.
_NOISE = 0.05


class ComparedStep(NamedTuple):
    """A finished step, for the comparison.

    Attributes:
        num_tokens: tokens that the target computed, without drafts.
        num_requests: number of requests in the step.
        context: total tokens of their texts.
        seconds: time from the step's planning to the next one's.
        expected: expected accepted draft tokens, all requests together.
        accepted: accepted draft tokens, all requests together.
        catch_up_seconds: seconds in which a proposer computed missing text.
        verifies: whether the step verified drafts.
        drafts: whether the step made drafts.
        planned: whether a plan was made for it, which takes time even if it has no drafts.
    """

    num_tokens: int
    num_requests: int
    context: int
    seconds: float
    expected: float = 0.0
    accepted: float = 0.0
    catch_up_seconds: float = 0.0
    verifies: bool = False
    drafts: bool = False
    planned: bool = False


class Window:
    """The latest steps with drafts, or without, oldest first.

    Args:
        size: maximum number of steps.
    """

    def __init__(self, size: int) -> None:
        # The latest step is the last row: moving all rows is faster than building an array of records.
        self._rows, self._count = np.zeros((size, 5)), 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Floats:
        """[n, 5], the first five attributes of `ComparedStep`."""
        return self._rows[len(self._rows) - self._count :]

    def append(self, step: ComparedStep) -> None:
        """Adds a step, and drops the oldest of a full window."""
        self._rows[:-1] = self._rows[1:]
        self._rows[-1] = step[:5]
        self._count = min(self._count + 1, len(self._rows))

    def keep(self, count: int) -> None:
        """Keeps the `count` latest steps."""
        self._count = min(self._count, count)

    def expected_per_request(self) -> float:
        """Returns the expected accepted draft tokens per request and step, on average."""
        return float((self.rows[:, 4] / self.rows[:, 1]).mean())


def winsorised_mean(values: Floats) -> tuple[float, float]:
    """Returns the winsorised mean, by a tenth of the values at each end, rounded up; and its standard error."""
    # For a few dozen numbers, lists are faster than arrays.
    ordered, count = sorted(values.tolist()), len(values)
    trimmed = -(-count // 10) if count > 2 else 0
    ordered[:trimmed] = ordered[trimmed : trimmed + 1] * trimmed
    ordered[count - trimmed :] = ordered[count - trimmed - 1 : count - trimmed] * trimmed
    mean = sum(ordered) / count
    return mean, max(math.sqrt(sum([(value - mean) ** 2 for value in ordered]) / count), _NOISE) / math.sqrt(count)
