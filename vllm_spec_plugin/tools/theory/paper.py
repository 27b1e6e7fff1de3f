"""The figures that Leviathan et al. (2023) print, and the same ones computed."""

from dataclasses import asdict, dataclass
from typing import Any

from vllm_spec_plugin.tools.theory.leviathan import (
    LARGEST_GAIN,
    best_draft_length,
    operations_factor,
    oracle_gain,
    speedup,
)

# The paper's text names no values for its Figure 3 but "always less than 0.05" for c in its own experiments.
FIGURE_3_COSTS = (0.01, 0.02, 0.05, 0.1, 0.2)
FIGURE_3_RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
_RATES_PER_UNIT = 1000  # that the largest gain of an oracle is looked for among


@dataclass(frozen=True)
class TradeOff:
    """A row of Table 1, c = c_hat = 0; operations and speed as multiples of decoding without speculation."""

    acceptance_rate: float
    draft_length: int
    operations: float
    speed: float


@dataclass(frozen=True)
class Experiment:
    """A row of Table 4: c from profiler traces, what theorem 3.8 makes of it, and what was measured."""

    task: str
    draft: str
    temperature: int
    draft_length: int
    acceptance_rate: float
    cost_ratio: float
    expected: float
    measured: float


TABLE_1 = (
    TradeOff(0.6, 2, 1.53, 1.96),
    TradeOff(0.7, 3, 1.58, 2.53),
    TradeOff(0.8, 2, 1.23, 2.44),
    TradeOff(0.8, 5, 1.63, 3.69),
    TradeOff(0.9, 2, 1.11, 2.71),
    TradeOff(0.9, 10, 1.60, 6.86),
)

TABLE_4 = (
    Experiment("EnDe", "T5-small", 0, 7, 0.75, 0.02, 3.2, 3.4),
    Experiment("EnDe", "T5-base", 0, 7, 0.80, 0.04, 3.3, 2.8),
    Experiment("EnDe", "T5-large", 0, 7, 0.82, 0.11, 2.5, 1.7),
    Experiment("EnDe", "T5-small", 1, 7, 0.62, 0.02, 2.3, 2.6),
    Experiment("EnDe", "T5-base", 1, 5, 0.68, 0.04, 2.4, 2.4),
    Experiment("EnDe", "T5-large", 1, 3, 0.71, 0.11, 2.0, 1.4),
    Experiment("CNNDM", "T5-small", 0, 5, 0.65, 0.02, 2.4, 3.1),
    Experiment("CNNDM", "T5-base", 0, 5, 0.73, 0.04, 2.6, 3.0),
    Experiment("CNNDM", "T5-large", 0, 3, 0.74, 0.11, 2.0, 2.2),
    Experiment("CNNDM", "T5-small", 1, 5, 0.53, 0.02, 1.9, 2.3),
    Experiment("CNNDM", "T5-base", 1, 3, 0.55, 0.04, 1.8, 2.2),
    Experiment("CNNDM", "T5-large", 1, 3, 0.56, 0.11, 1.6, 1.7),
)


@dataclass(frozen=True)
class OracleGain:
    """Section 3.5 for one c: the alpha, from 0.001 to 0.999, at which an oracle for K gains most over a fixed K."""

    cost_ratio: float
    acceptance_rate: float
    gain: float


def computed_operations(row: TradeOff) -> float:
    """Theorem 3.11 for a row of Table 1."""
    return operations_factor(row.acceptance_rate, row.draft_length, 0)


def computed_speed(row: TradeOff) -> float:
    """Theorem 3.8 for a row of Table 1."""
    return speedup(row.acceptance_rate, row.draft_length, 0)


def computed_range(row: Experiment) -> tuple[float, float, float]:
    """Theorem 3.8 for a row of Table 4: the least, that of the printed figures, the most.

    The paper rounds alpha and c to two decimals; the least and the most are what they may have been rounded from.
    """
    half = 0.005
    low, high = row.acceptance_rate - half, row.acceptance_rate + half
    return (
        speedup(low, row.draft_length, row.cost_ratio + half),
        speedup(row.acceptance_rate, row.draft_length, row.cost_ratio),
        speedup(high, row.draft_length, row.cost_ratio - half),
    )


def figure_3() -> list[list[int | None]]:
    """The best K, one row per cost ratio, one column per acceptance rate."""
    return [[best_draft_length(rate, cost) for rate in FIGURE_3_RATES] for cost in FIGURE_3_COSTS]


def largest_gains() -> list[OracleGain]:
    """What an oracle for K gains at most, for each cost ratio of Figure 3."""
    rates = [number / _RATES_PER_UNIT for number in range(1, _RATES_PER_UNIT)]
    return [
        OracleGain(cost, rate, gain)
        for cost in FIGURE_3_COSTS
        for gain, rate in [max((oracle_gain(rate, cost), rate) for rate in rates)]
    ]


def to_json() -> dict[str, Any]:
    """Everything, in plain values."""
    return {
        "table_1": [
            asdict(row) | {"computed_operations": computed_operations(row), "computed_speed": computed_speed(row)}
            for row in TABLE_1
        ],
        "table_4": [
            asdict(row) | dict(zip(("least", "computed", "most"), computed_range(row), strict=True)) for row in TABLE_4
        ],
        "figure_3": {
            "cost_ratios": FIGURE_3_COSTS,
            "acceptance_rates": FIGURE_3_RATES,
            "best_draft_lengths": figure_3(),
        },
        "oracle": {"largest_gains": [asdict(gain) for gain in largest_gains()], "limit": LARGEST_GAIN},
    }
