"""Compiles functions with numba, keeping their type, and names the array types that they take."""

import logging
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

logger = logging.getLogger("vllm.vllm_spec_plugin")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

P = ParamSpec("P")
R = TypeVar("R")
_has_warned = False


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles at the first call, and caches the machine code on disk. Division by 0 is as in numpy: no error.

    numba detects edits of the function's file, not of files with functions that it calls: after editing one of these,
    touch the file that calls it (installing writes both).

    A function that returns arrays or tuples is called either from Python or from compiled functions: loaded from the
    cache by one of them, it has no types for the other (numba 0.65: "descr is NULL"). Others write into arrays.

    numba caches in NUMBA_CACHE_DIR, the package's folder, or the user's cache folder (XDG_CACHE_HOME, ~/.cache). Where
    it cannot, the cache is in vLLM's folder; there is none if that is not writable either.
    """
    global _has_warned
    settings: Any = numba.config
    given, root = settings.CACHE_DIR, os.environ.get("VLLM_CACHE_ROOT")
    for folder in [given, f"{root}/numba"] if root else [given]:
        settings.CACHE_DIR = folder
        try:
            return cast(Callable[P, R], numba.njit(cache=True, error_model="numpy")(function))
        except RuntimeError:  # no folder is writable
            pass
        finally:
            settings.CACHE_DIR = given
    if not _has_warned:
        _has_warned = True
        logger.warning(
            "no writable folder for compiled code: every start compiles it again, which takes longer; set "
            "NUMBA_CACHE_DIR or VLLM_CACHE_ROOT to a writable folder"
        )
    return cast(Callable[P, R], numba.njit(error_model="numpy")(function))
