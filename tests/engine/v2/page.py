"""Writes docs/v2.md from the results of `make v2`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.engine.v2.cells import GREEDY_TOKENS, SAMPLED_TOKENS
from tests.engine.v2.drafters import DRAFTERS, NUM_PROMPTS

_DOCS = Path(__file__).parents[3] / "docs"
PAGE, RESULTS = _DOCS / "v2.md", _DOCS / "v2.json"
# A p-value below it says that outputs do not have the target's distribution.
LEAST_P = 1e-5


def is_exact(cell: Mapping[str, Any]) -> bool:
    """Whether a cell ran and its outputs are the target's."""
    return "accepted" in cell and min(cell.get("p_values", {"": 1.0}).values()) > LEAST_P


def _text(cell: Mapping[str, Any]) -> str:
    if "error" in cell or "wrong" in cell:
        return f"**fails**: {cell.get('error') or cell['wrong']}"
    counts = f"({cell['accepted']}, {cell['rejected']})"
    if "p_values" not in cell:
        return f"equal {counts}"
    name = min(cell["p_values"], key=cell["p_values"].__getitem__)
    return f"{'exact' if is_exact(cell) else '**wrong**'} {counts}, p {cell['p_values'][name]:.2g} ({name})"
