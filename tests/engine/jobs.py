"""What is sent to an arm, an engine in a process of its own, and what comes back. Imports no vLLM."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request.

    Attributes:
        prompt: token ids.
        params: keyword arguments of vLLM's `SamplingParams`; "structured_outputs" may be a dict of the
            keyword arguments of `StructuredOutputsParams`.
    """

    prompt: tuple[int, ...]
    params: dict[str, Any] = field(hash=False)


@dataclass(frozen=True)
class Job:
    """Requests that are given to the engine together.

    Attributes:
        requests: in order of arrival.
        sabotage: name of a fault of the scorer, in force during the job (see `sabotage.py`).
        fault: name of a fault of the proposer, in force during the job (see `faults.py`).
        torch_seed: seeds torch's default generator, which requests without a seed share.
        record_drafting: share of the draft model's outputs to record (see `recorder.py`).
    """

    requests: list[Request]
    sabotage: str = ""
    fault: str = ""
    torch_seed: int = 0
    record_drafting: float = 0.0


@dataclass
class Output:
    """One of a request's outputs.

    Attributes:
        token_ids: of the output.
        text: of the output; empty where detokenisation is off.
        finish_reason: vLLM's.
        stop_reason: vLLM's.
        logprobs: per output token, token id to logprob; None where not asked for.
    """

    token_ids: list[int]
    text: str
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: list[dict[int, float]] | None


@dataclass
class Result:
    """What a job gave.

    Attributes:
        outputs: per request its n outputs.
        prompt_logprobs: per request, per prompt token; None where not asked for.
        metrics: how much each of vLLM's and the plugin's counters grew, by name, with labels of the
            plugin's appended as "{label=value}".
        seconds: how long it took.
        drafting: recorded outputs of the draft model: the text it continued, and its logits.
        draft_pass: how the draft model runs, see `DraftPass.how`; empty if there is none.
    """

    outputs: list[list[Output]]
    prompt_logprobs: list[list[dict[int, float] | None] | None]
    metrics: dict[str, float]
    seconds: float
    drafting: list[tuple[list[int], list[float]]] = field(default_factory=list)
    draft_pass: str = ""

    def tokens(self) -> list[list[int]]:
        """The first output of each request."""
        return [outputs[0].token_ids for outputs in self.outputs]

    @property
    def accepted(self) -> int:
        """Draft tokens that were accepted."""
        return int(self.metrics.get("vllm:spec_decode_num_accepted_tokens", 0))

    @property
    def rejected(self) -> int:
        """Draft tokens that were not accepted."""
        return int(self.metrics.get("vllm:spec_decode_num_draft_tokens", 0)) - self.accepted

    @property
    def preemptions(self) -> int:
        """How often a request was preempted."""
        return int(self.metrics.get("vllm:num_preemptions", 0))
