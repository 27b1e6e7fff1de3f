"""Engines in processes of their own, and the jobs that they run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from vllm_spec_tools.bench.records import LoadAnswer, LoadJob
from vllm_spec_tools.engines.engine_child import EngineChild

# vLLM's counter of preempted requests.
PREEMPTIONS = "vllm:num_preemptions"

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class CertifyRequest:
    """One request.

    Attributes:
        params: keyword arguments of vLLM's `SamplingParams`; "structured_outputs" may be a dict of the
            keyword arguments of `StructuredOutputsParams`. With "flat_logprobs" the logprobs of the output are
            returned as `JobOutput.rows`.
        lora: folder of a LoRA adapter; empty is none. Not in a job `by_step`.
    """

    prompt: Tokens
    params: dict[str, Any] = field(hash=False)
    lora: str = ""


@dataclass(frozen=True)
class Job:
    """Requests that are given to the engine together.

    Attributes:
        torch_seed: seeds torch's default generator, which requests without a seed share.
        by_step: whether to record the step of each token; for outputs that nothing but their length ends.
    """

    requests: list[CertifyRequest]
    torch_seed: int = 0
    by_step: bool = False
    texts: Sequence[str] = ()


class Step(NamedTuple):
    """An engine step of an output.

    Attributes:
        size: tokens that it sampled: the accepted draft tokens and one more; some may be after the output's end.
        drafts: draft tokens that it verified, by token id; -1 where only the device knows them.
        number: its number among the engine's steps of the job.
    """

    size: int
    drafts: tuple[int, ...] = ()
    number: int = 0


@dataclass
class JobOutput:
    """One of a request's outputs.

    Attributes:
        text: of the output; empty where detokenisation is off.
        logprobs: per output token, token id to logprob; None if not requested.
        rows: per output token [vocab_size], the logprobs by token id; None if not requested.
        steps: the engine steps that sampled tokens; empty without `Job.by_step`.
        content: text after the reasoning, which may be missing; None where the engine has no reasoning parser.
    """

    token_ids: list[int]
    text: str
    finish_reason: str | None
    stop_reason: int | str | None
    logprobs: list[dict[int, float]] | None
    rows: list[npt.NDArray[np.float32]] | None = None
    steps: list[Step] = field(default_factory=list)
    content: str | None = None


@dataclass
class JobResult:
    """The results of a job.

    Attributes:
        prompt_logprobs: per request, per prompt token; None if not requested.
        metrics: how much each of vLLM's and the plugin's counters grew, by name, with labels of the
            plugin's appended as "{label=value}", and verified draft tokens as "verified:METHOD".
    """

    outputs: list[list[JobOutput]]
    encoded: list[Tokens]
    prompt_logprobs: list[list[dict[int, float] | None] | None]
    metrics: dict[str, float]
    seconds: float
    notes: dict[str, Any] = field(default_factory=dict)

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

    def verified_of(self, method: str) -> int:
        """Draft tokens of one of the plugin's methods that were verified."""
        return int(self.metrics.get(f"verified:{method}", 0))

    @property
    def preemptions(self) -> int:
        """Number of preemptions of requests."""
        return int(self.metrics.get(PREEMPTIONS, 0))


class RunsJobs(Protocol):
    """An engine, wherever it is."""

    def facts(self) -> dict[str, Any]:
        """Returns its device, dtype, sizes and tokenizer, see `engine_process.py`."""
        ...

    def run(self, job: Job) -> JobResult:
        """Runs a job to its end."""
        ...


class EngineProcess(EngineChild):
    """An engine in a process of its own: the one way in which tools start an engine without a server.

    Every method that asks the engine raises `EngineError` if the engine ended, or took too long.
    """

    def run(self, job: Job) -> JobResult:
        """Runs `job`."""
        result: JobResult = self.ask(("run", job))
        return result

    def load(self, job: LoadJob) -> LoadAnswer:
        """Runs a job of concurrent streams."""
        answer: LoadAnswer = self.ask(("load", job))
        return answer

    def top_two(self, prompt: str, token_ids: Sequence[int], schema: str = "") -> dict[int, float]:
        """Log-probabilities of the two most likely tokens after a prompt and a beginning of its output, by token id.

        Args:
            schema: JSON schema of the output; empty is none.
        """
        found: dict[int, float] = self.ask(("top_two", prompt, list(token_ids), schema))
        return found
