"""Compiles functions with numba, keeping their type, and names the array types that they take."""

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
    """Compiles at the first call, and caches the machine code on disk. Division by 0 is as in numpy: no error.

    numba detects edits of the function's file, not of files with functions that it calls: after editing trie.py, touch
    backoff.py too (installing writes both).
    """
    return cast(Callable[P, R], numba.njit(cache=True, error_model="numpy")(function))


def compiled_sum(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles as `compiled`, and adds in any order, which vector instructions need."""
    return cast(Callable[P, R], numba.njit(cache=True, fastmath={"reassoc"})(function))
