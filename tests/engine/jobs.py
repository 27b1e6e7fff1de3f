"""The product's jobs with faults on purpose and recordings, which `hooks.py` puts in force."""

from dataclasses import dataclass, field, fields
from typing import Any

from vllm_spec_tools.engines import jobs
from vllm_spec_tools.engines.jobs import CertifyRequest, JobOutput, JobResult, Tokens

__all__ = ["CertifyRequest", "Job", "JobOutput", "JobResult", "Session", "Tokens", "hooked"]


@dataclass(frozen=True)
class Session:
    """A streaming session."""

    turns: list[Tokens]  # Its prompts, each sent when the answer to the one before has stopped.
    params: dict[str, Any]  # Keyword arguments of vLLM's `SamplingParams`, for each turn.


@dataclass(frozen=True)
class Job(jobs.Job):
    """Requests that are given to the engine together."""

    sabotage: str = ""  # Name of a fault of the scorer, in force during the job (see `sabotage.py`).
    # Name of a fault of the proposer, in force during the job (see `faults.py`); with "@1" on rank 1 only.
    fault: str = ""
    # Share of the draft model's outputs to record as the note "drafting" (see `recorder.py`).
    record_drafting: float = 0.0
    # Run side by side before the requests; the note "sessions" has the tokens of each one's turns.
    sessions: list[Session] = field(default_factory=list)
    storm: Any = None  # A `storm.Storm` before the requests; the note "storm" has the results of its requests.
    # Before the requests the engine sleeps at that level, and wakes up; 0 is not at all.
    sleep_level: int = 0
    weights: str = ""  # What happens to the weights before the requests; one of `lifecycle.EVENTS`.


def hooked(job: jobs.Job, **more: Any) -> Job:
    """The product's job as one of the tests.

    Args:
        more: attributes of the tests' `Job`.
    """
    return Job(**{each.name: getattr(job, each.name) for each in fields(jobs.Job)}, **more)
