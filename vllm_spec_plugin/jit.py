"""numba's compiler as a decorator that keeps the function's type, and the arrays that compiled functions take."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles at the first call and keeps the machine code on disk for the next process.

    numba notices edits to the file a function is written in, not to those it calls into: after
    editing trie.py, backoff.py has to be touched too (installing writes both).
    """
    return cast(Callable[P, R], numba.njit(cache=True)(function))
