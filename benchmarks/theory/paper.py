"""The figures that Leviathan et al. (2023) print, and the same ones computed."""

from dataclasses import dataclass

from benchmarks.theory.leviathan import best_draft_length, operations_factor, oracle_gain, speedup

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


def computed(row: TradeOff) -> tuple[float, float]:
    """Theorems 3.11 and 3.8 for a row of Table 1: operations and speed."""
    rate, length = row.acceptance_rate, row.draft_length
    return operations_factor(rate, length, 0), speedup(rate, length, 0)


def computed_range(row: Experiment) -> tuple[float, float, float]:
    """Theorem 3.8 for a row of Table 4: the least, that of the printed figures, the most.

    The paper rounds alpha and c to two decimals; the least and the most are what they may have been rounded from.
    """
    errors = (-0.005, 0, 0.005)
    least, middle, most = (
        speedup(row.acceptance_rate + error, row.draft_length, row.cost_ratio - error) for error in errors
    )
    return least, middle, most


def figure_3() -> list[list[int | None]]:
    """The best K, one row per cost ratio, one column per acceptance rate."""
    return [[best_draft_length(rate, cost) for rate in FIGURE_3_RATES] for cost in FIGURE_3_COSTS]


def largest_gains() -> list[tuple[float, float, float]]:
    """Section 3.5: c of Figure 3, the alpha from 0.001 to 0.999 that is worst for a fixed K, an oracle's gain there."""
    rates = [number / _RATES_PER_UNIT for number in range(1, _RATES_PER_UNIT)]
    gains = ((cost, max((oracle_gain(rate, cost), rate) for rate in rates)) for cost in FIGURE_3_COSTS)
    return [(cost, rate, gain) for cost, (gain, rate) in gains]
