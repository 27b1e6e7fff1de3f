"""Keeps the outputs without speculation in a file, for certifications of several configurations of one model."""

import pickle
from pathlib import Path
from typing import Any

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.certify.baseline import Baseline

# Errors of files that are no baselines.
_BROKEN = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, TypeError, ValueError)


def read_baseline(path: Path, made_with: dict[str, Any]) -> Baseline | None:
    """Returns the baseline of a file; None if there is no file.

    Args:
        path: a file that `write_baseline` wrote, on this machine: reading one may run code that is in it.
        made_with: what the baseline depends on, by name.

    Raises:
        UserError: the file has none, or one that was made with something else.
    """
    if not path.exists():
        return None
    try:
        known, baseline = pickle.loads(path.read_bytes())
        assert isinstance(baseline, Baseline)
    except OSError as error:
        raise UserError(f"--baseline {path}: cannot be read: {error.strerror}") from None
    except (*_BROKEN, AssertionError):
        allowed = "a file that certify --baseline wrote, or a new one"
        raise UserError(f"--baseline {path}: got no baseline of this version; allowed: {allowed}") from None
    other = [name for name, value in made_with.items() if known.get(name) != value]
    if other:
        text = f"got a baseline of other {', '.join(other)}; allowed: one of the same, or a new file"
        raise UserError(f"--baseline {path}: {text}")
    return baseline


def write_baseline(path: Path, made_with: dict[str, Any], baseline: Baseline) -> None:
    """Writes a baseline for later certifications."""
    try:
        path.write_bytes(pickle.dumps((made_with, baseline)))
    except OSError as error:
        raise UserError(f"--baseline {path}: cannot be written: {error.strerror}") from None
