"""The smallest fault that a test would have found, simulated with the numbers of outputs that were made."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from vllm_spec_tools.certify.draft_share import Cell, Text
from vllm_spec_tools.certify.target_probabilities import Floats

# Faults that are simulated: shares of the draft tokens that are output without being verified.
FAULTS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
# Of simulations that must find a fault.
POWER = 0.95
_SIMULATIONS = 200


def smallest_fault(cells: Sequence[Cell], drafts: Mapping[Text, Counter[int]], needed: float) -> float | None:
    """Returns the smallest of `FAULTS` that is found with `POWER`; None if none is. Seed 0.

    A fault outputs this share of the draft tokens without verification, at each drafted position.

    Args:
        cells: outputs that were tested.
        drafts: by prompt and prefix, the draft tokens.
        needed: logarithm of the e-value of these cells at which the outputs are not exact.
    """
    low, high = 0, len(FAULTS)
    while low < high:
        middle = (low + high) // 2
        if found_share(cells, drafts, needed, FAULTS[middle]) >= POWER:
            high = middle
        else:
            low = middle + 1
    return FAULTS[low] if low < len(FAULTS) else None


def found_share(cells: Sequence[Cell], drafts: Mapping[Text, Counter[int]], needed: float, fault: float) -> float:
    """Returns the share of simulations in which a fault is found."""
    if not cells:
        return 0.0
    rng = np.random.default_rng(0)
    log_e = np.zeros((_SIMULATIONS, cells[0].log_factors.shape[1]))
    for cell in cells:
        tokens = drafts[cell.text]
        drafted = np.array([tokens[token_id] for token_id in cell.token_ids]) / tokens.total()
        probs: Floats = (1 - fault) * cell.probs + fault * drafted
        counts = rng.multinomial(cell.count, [*probs, max(1 - probs.sum(), 0.0)], size=_SIMULATIONS)
        log_e += counts @ cell.log_factors
    evidence = np.logaddexp.reduce(log_e, axis=1) - math.log(log_e.shape[1])
    return float((evidence > needed).mean())
