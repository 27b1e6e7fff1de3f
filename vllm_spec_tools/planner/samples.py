"""What was measured, job by job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vllm_spec_tools.bench.records import Answer
from vllm_spec_tools.planner.candidates import Engine

NONE = "none"


@dataclass(frozen=True)
class Setting:
    """How a job's requests are drafted for.

    Attributes:
        candidate: the proposer's name; `NONE` is the engine without speculation.
        tokens: most draft tokens; 0 there.
    """

    candidate: str
    tokens: int

    def __str__(self) -> str:
        return self.candidate if self.candidate == NONE else f"{self.candidate}, {self.tokens} tokens"


@dataclass(frozen=True)
class Sample:
    """A job that was done.

    Attributes:
        others: cores that other processes used meanwhile, on average; None is not known.
    """

    setting: Setting
    workload: str
    concurrency: int
    answer: Answer
    others: float | None = None


@dataclass(frozen=True)
class Measured:
    """What was measured of an engine, in turns with the one without speculation.

    Attributes:
        first_tokens: seconds from asking to the first token of each request that joined others in a closed loop, by
            setting and concurrency.
    """

    engine: Engine
    samples: tuple[Sample, ...]
    first_tokens: Mapping[tuple[Setting, int], Sequence[float]] = field(default_factory=dict)

    def of(self, candidate: str, concurrency: int | None = None, tokens: int | None = None) -> list[Sample]:
        """The samples of a candidate or of `NONE`, at one concurrency and draft length or at all."""
        return [
            sample
            for sample in self.samples
            if sample.setting.candidate == candidate
            and concurrency in (None, sample.concurrency)
            and tokens in (None, sample.setting.tokens)
        ]

    def first_token_seconds(self, setting: Setting, concurrency: int) -> Sequence[float]:
        """What steps with a prompt in them took; of one request alone in its jobs, of several in a closed loop."""
        if concurrency == 1:
            steps = (step for sample in self.of(setting.candidate, 1, setting.tokens) for step in sample.answer.steps)
            return [step.seconds for step in steps if step.in_prompt]
        return self.first_tokens.get((setting, concurrency), ())

    def at(self, concurrency: int) -> list[Sample]:
        """The samples of all that drafts at one concurrency."""
        return [s for s in self.samples if s.setting.candidate != NONE and s.concurrency == concurrency]
