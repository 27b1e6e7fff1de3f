"""Where time goes inside something that is called over and over."""

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any


class Stopwatch:
    """Adds up seconds by part; what a part spends in another one counts for that one only.

    Attributes:
        seconds: per part.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Nothing is timed so far.

        Args:
            clock: returns the time in seconds.
        """
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._clock = clock
        self._open: list[str] = []
        self._since = 0.0

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose calls count for `part`."""

        @functools.wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            self._turn(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._turn(None)

        return call

    def _turn(self, entered: str | None) -> None:
        now = self._clock()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        if entered is None:
            self._open.pop()
        else:
            self._open.append(entered)
        self._since = now


class TimedModel:
    """Stands for a model: its pass and its output head are timed, everything else is the model's own."""

    def __init__(self, model: Any, stopwatch: Stopwatch, part: str) -> None:
        """Takes the model, and the name of the part that it is."""
        self._model = model
        self._forward = stopwatch.timed(part, model)
        self.compute_logits = stopwatch.timed(part, model.compute_logits)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's pass."""
        return self._forward(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Whatever else the model has."""
        return getattr(self._model, name)


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """While it lasts, `owner.name` is `make(what it was)`.

    Raises:
        AttributeError: there is no such name.
    """
    original, own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)
