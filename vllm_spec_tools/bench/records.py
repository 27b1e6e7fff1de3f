"""What is measured, as it travels from an arm to the report."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
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
class Job:
    """Texts to complete in one batch.

    Attributes:
        prompts: one per request.
        num_tokens: that each gets, whatever it says.
        spec_tokens: most draft tokens of each request, 0 is off; None is as the engine does.
        spec_method: the only proposer that may draft; None is any of the engine's.
        predictions: of each output, empty for none; none has one if there are none here.
    """

    prompts: tuple[str, ...]
    temperature: float
    num_tokens: int
    seed: int
    spec_tokens: int | None = None
    spec_method: str | None = None
    predictions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What came of a job.

    Attributes:
        prompt_token_ids: per request.
        token_ids: per request, its output.
        steps: in order.
        num_drafts: drafts that were verified, by vLLM's count.
        accepted_by_position: number of accepted draft tokens by position, in trees by level.
    """

    seconds: float
    cpu_seconds: float
    prompt_token_ids: list[list[int]]
    token_ids: list[list[int]]
    steps: list[Step]
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    accepted_by_position: list[int] = field(default_factory=list)
