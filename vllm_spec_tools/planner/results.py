"""All that a plan comes to. Pure."""

from dataclasses import dataclass, field

from vllm_spec_tools.planner.forecast import Forecast
from vllm_spec_tools.planner.memory import Memory
from vllm_spec_tools.planner.recommending import Verdict
from vllm_spec_tools.planner.samples import Measured
from vllm_spec_tools.planner.traffic import Workload
from vllm_spec_tools.planner.verifying import Verified


@dataclass(frozen=True)
class Results:
    """What was measured, expected, verified and recommended.

    Attributes:
        levels: requests at once.
        measured: per engine, chains first; at least one.
        forecasts: per candidate.
        verified: what was measured of it in a closed loop, by concurrency; empty if nothing was.
        memory: of the target, and of each candidate beside it, by name.
        facts: per engine, what vLLM chose by itself.
        others: per job, the cores that other processes used meanwhile; empty where that is unknown.
        remarks: what was not measured, and why.
    """

    workloads: tuple[Workload, ...]
    levels: tuple[int, ...]
    measured: tuple[Measured, ...]
    forecasts: tuple[Forecast, ...]
    choice: Forecast
    verified: dict[int, Verified]
    verdict: Verdict
    memory: dict[str, Memory]
    facts: dict[str, dict[str, object]] = field(default_factory=dict)
    others: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()
