"""Records of measurements, from an arm to the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

# A workload and the number of its streams.
Cell = tuple[str, int]


class EngineStep(NamedTuple):
    """One step of an engine.

    Attributes:
        num_tokens: tokens that the target computed, drafts included.
        in_prompt: whether some of them were a prompt's.
        seconds: the whole step's, scheduling and output included.
        drafting_seconds: of which the runner took to draft, the preparation of the drafter's input included.
        proposer_seconds: of which the drafter itself took.
    """

    num_requests: int
    num_tokens: int
    in_prompt: bool
    seconds: float
    drafting_seconds: float
    proposer_seconds: float


@dataclass(frozen=True)
class LoadRequest:
    """A text to complete.

    Attributes:
        num_tokens: that it gets, whatever it says, or at most if it `may_end`.
        prediction: of its output, which arms without `method: prediction` ignore; empty is none.
        may_end: whether it ends where the model ends it.
        schema: JSON schema of its output, as JSON, whose end also ends it; empty is none.
        chat: messages of the prompt, role and content; empty where no turns follow.
        turns: user messages that follow, each after the model's own answer to the one before.
    """

    kind: str
    prompt: str
    temperature: float
    num_tokens: int
    prediction: str = ""
    may_end: bool = False
    schema: str = ""
    chat: tuple[tuple[str, str], ...] = ()
    turns: tuple[str, ...] = ()

    def next_turn(self, answer: str, render: Callable[[Sequence[Mapping[str, str]]], str]) -> "LoadRequest | None":
        """Returns the next turn of the conversation; None after the last one.

        Args:
            answer: the model's to this turn.
            render: writes messages as the model's prompt.
        """
        if not self.turns:
            return None
        chat = (*self.chat, ("assistant", answer), ("user", self.turns[0]))
        prompt = render([{"role": role, "content": content} for role, content in chat])
        return replace(self, prompt=prompt, chat=chat, turns=self.turns[1:])


class Phase(NamedTuple):
    """Streams that take one request after the other from a list that starts again at its end.

    Attributes:
        num_tokens: output tokens of all streams together after which the phase ends; what is in flight is aborted.
            They count from when each stream has its first one.
        is_pass: whether the requests are sent once, all at the beginning, which is measured as well; the phase ends
            with the last of them.
    """

    requests: tuple[LoadRequest, ...]
    num_tokens: int
    is_pass: bool = False


@dataclass(frozen=True)
class LoadJob:
    """Phases, one right after the other.

    Attributes:
        streams: requests in flight at any time.
        spec_tokens: most draft tokens of each request, 0 is off; None is as the engine does.
        spec_method: the only proposer that may draft; None is any of the engine's.
        record_steps: whether to record what each step took, which costs time on some devices.
    """

    streams: int
    phases: tuple[Phase, ...]
    seed: int
    spec_tokens: int | None = None
    spec_method: str | None = None
    record_steps: bool = False


class LoadOutput(NamedTuple):
    """Output of a request, from its beginning; it has ended, or was given up.

    Attributes:
        prompt: of a later turn, which has earlier answers in it; empty is the request's own.
        turns: outputs of a conversation's later turns.
    """

    token_ids: list[int]
    has_ended: bool
    prompt: str = ""
    turns: "tuple[LoadOutput, ...]" = ()


@dataclass(frozen=True)
class Progress:
    """Measurements of a phase, step by step.

    Attributes:
        seconds: since each stream had its first token, at the end of each step that brought tokens.
        ttft: seconds from sending a request to its first token, of requests sent in this time.
        tpot: seconds per output token as a user sees them, (last - first token's moment) / (tokens - 1), of requests
            that ended in this time, and of those in flight at its end that had at least 16 tokens: with one stream
            few end. Of a request that began before, its last token before this time counts as its first.
        latency: seconds from sending a request to its last token, of requests sent and ended in this time.
        outputs: outputs of the phase's requests in the order of sending, aborted or not.
    """

    seconds: list[float]
    tokens: list[int]
    request_steps: int
    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    outputs: list[LoadOutput] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second of the whole phase."""
        return self.tokens[-1] / self.seconds[-1]


@dataclass(frozen=True)
class PhaseAnswer:
    """Result of a phase, with accepted draft tokens by position, in trees by level."""

    progress: Progress
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    accepted_by_position: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class LoadAnswer:
    """Result of a job.

    Attributes:
        cpu_seconds: that the arm's process used, all its threads together, for prompts as well.
        steps: of all phases, if the job asks for them.
        preemptions: of requests that left the KV cache for others and were computed again.
    """

    cpu_seconds: float
    phases: list[PhaseAnswer]
    steps: list[EngineStep] = field(default_factory=list)
    preemptions: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Output tokens over the time of all phases."""
        progress = [phase.progress for phase in self.phases]
        return sum(phase.tokens[-1] for phase in progress) / sum(phase.seconds[-1] for phase in progress)


@dataclass(frozen=True)
class LoadRun:
    """One arm's answer in one round, from 0; others are mean cores of other processes meanwhile, None is not known."""

    arm: str
    cell: Cell
    round: int
    answer: LoadAnswer
    others: float | None = None
