"""Inspects and times an engine in this process."""

import contextlib
import functools
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from vllm_spec_plugin.compat.runner import kv_bytes_per_token
from vllm_spec_tools.engines.jobs import Step
from vllm_spec_tools.prompts import render_chat

if TYPE_CHECKING:
    from vllm import LLM
    from vllm.v1.engine.core import EngineCore

    from vllm_spec_plugin.compat.types import GPUModelRunner, SchedulerOutput


def live_runner(llm: "LLM") -> "GPUModelRunner | None":
    """Returns the model runner of a `vllm.LLM` in this process (`VLLM_ENABLE_V1_MULTIPROCESSING=0`).

    None if its workers are processes of their own, as with tensor parallelism.
    """
    driver = getattr(_core(llm).model_executor, "driver_worker", None)
    return None if driver is None else driver.worker.model_runner


def _core(llm: "LLM") -> "EngineCore":
    from vllm.v1.engine.core_client import InprocClient

    client = llm.llm_engine.engine_core
    assert isinstance(client, InprocClient), "the engine is in another process"
    return client.engine_core


def speculation_counts(llm: "LLM") -> list[int]:
    """Returns drafts, draft tokens and accepted tokens since the engine started, then accepted tokens by position.

    Needs `disable_log_stats=False`.
    """
    metrics: dict[str, Any] = {
        metric.name.removeprefix("vllm:spec_decode_num_"): metric for metric in llm.get_metrics()
    }
    names = ("drafts", "draft_tokens", "accepted_tokens")
    by_position = getattr(metrics.get("accepted_tokens_per_pos"), "values", ())
    return [*(int(metrics[name].value) if name in metrics else 0 for name in names), *by_position]


def kv_bytes_of_token(llm: "LLM") -> int:
    """Returns the bytes that a token takes in the KV cache of a rank, a draft model's included."""
    from vllm_spec_plugin.compat.scheduler import Scheduler

    scheduler = _core(llm).scheduler
    assert isinstance(scheduler, Scheduler)
    return sum(kv_bytes_per_token(scheduler.kv_cache_config).values())


@contextlib.contextmanager
def recorded_steps(llm: "LLM") -> Iterator[dict[tuple[str, int], list[Step]]]:
    """Yields a dict that each engine step adds to: by request id and output index, the steps that sampled tokens."""
    scheduler, states = _core(llm).scheduler, llm.llm_engine.output_processor.request_states
    update, steps = scheduler.update_from_output, defaultdict[tuple[str, int], list[Step]](list)
    numbers = itertools.count()

    def recording_update(plan: Any, outcome: Any) -> Any:
        invalid, sampled, number = plan.num_invalid_spec_tokens or {}, outcome.sampled_token_ids, next(numbers)
        for internal_id, row in outcome.req_id_to_index.items():
            state = states.get(internal_id)
            if state is not None and sampled and sampled[row]:
                name = state.external_req_id if state.parent_req is None else state.parent_req.external_req_id
                drafts = tuple(plan.scheduled_spec_decode_tokens.get(internal_id, ()))
                # A grammar's placeholders were never drafts.
                drafts = drafts[: len(drafts) - invalid.get(internal_id, 0)]
                steps[name, state.request_index].append(Step(len(sampled[row]), drafts, number))
        return update(plan, outcome)

    with mock.patch.object(scheduler, "update_from_output", recording_update):
        yield steps


class SteppedEngine:
    """Drives a `vllm.LLM` step by step, for `bench.load.closed_loop`."""

    def __init__(
        self,
        llm: "LLM",
        prompts: Iterable[str],
        options: Callable[[str], dict[str, Any] | None],
    ) -> None:
        """Tokenizes the prompts, so that it is not timed.

        Args:
            options: returns `SamplingParams.extra_args` of a request with that predicted output, empty for none.
        """
        self._engine, self._tokenizer = llm.llm_engine, llm.get_tokenizer()
        self._token_ids = {prompt: self._tokenizer.encode(prompt) for prompt in prompts}
        self._options = options
        self._names = (f"stream-{number}" for number in itertools.count())

    def add(self, request: Any) -> str:
        """Adds a `bench.load.records.Request`, and returns its id."""
        name = next(self._names)
        params = SamplingParams(
            temperature=request.temperature,
            max_tokens=request.num_tokens,
            # Nothing may follow the end of a schema.
            ignore_eos=not (request.may_end or request.schema),
            structured_outputs=StructuredOutputsParams(json=request.schema) if request.schema else None,
            extra_args=self._options(request.prediction),
            output_kind=RequestOutputKind.DELTA,
        )
        self._engine.add_request(name, {"prompt_token_ids": self._token_ids[request.prompt]}, params)
        return name

    def step(self) -> list[tuple[str, list[int], bool]]:
        """Runs a step; returns each updated request's id, new tokens, and whether it has ended."""
        outputs: list[Any] = self._engine.step()
        return [(output.request_id, list(output.outputs[0].token_ids), output.finished) for output in outputs]

    def next_turn(self, request: Any, token_ids: Sequence[int]) -> Any:
        """Returns the next turn of a conversation after this answer; None if it does not fit the context."""
        answer = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        turn = request.next_turn(answer, functools.partial(render_chat, self._tokenizer))
        prompt = self._token_ids.setdefault(turn.prompt, self._tokenizer.encode(turn.prompt))
        fits = len(prompt) + turn.num_tokens <= self._engine.vllm_config.model_config.max_model_len
        return turn if fits else None

    def abort(self, names: Iterable[str]) -> None:
        """Aborts requests."""
        self._engine.abort_request(list(names))
        # An asynchronous scheduler is a step ahead: this step ends the requests.
        self._engine.step()


class StepWatch:
    """Records the contents of each step of an engine, and the time of its parts.

    On an asynchronous device it waits before and after drafting: parts are exact, the whole step is slower than without
    the watch. With workers in processes of their own it times the calls to them.

    Attributes:
        steps: steps since the last `clear`, each with the attributes of `bench.records.Step`.
    """

    def __init__(self, llm: "LLM") -> None:
        """Records every step of `llm` from now on."""
        self.steps: list[dict[str, Any]] = []
        self._seen: dict[str, Any] = {}
        runner = live_runner(llm)
        self._waits = runner is not None and runner.device.type != "cpu"
        drafting, proposer = (functools.partial(self._timed, f"{part}_seconds") for part in ("drafting", "proposer"))
        _replace(llm.llm_engine, "step", self._whole)
        if runner is None:
            executor = _core(llm).model_executor
            _replace(executor, "execute_model", self._target)
            _replace(executor, "take_draft_token_ids", proposer)
            _replace(executor, "take_draft_token_ids", drafting)
            return
        _replace(runner, "execute_model", self._target)
        if hasattr(runner, "drafter"):
            # The plugin drafts when vLLM takes the drafts; its `propose` only satisfies vLLM's checks.
            is_ours = hasattr(runner.drafter, "draft")
            _replace(runner, "take_draft_token_ids" if is_ours else "propose_draft_token_ids", drafting)
            _replace(runner.drafter, "draft" if is_ours else "propose", proposer)

    def clear(self) -> None:
        """Drops the recorded steps."""
        self.steps = []

    def _whole(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._seen = {"drafting_seconds": 0.0, "proposer_seconds": 0.0}
        start = time.perf_counter()
        result = original(*args, **kwargs)
        # vLLM's asynchronous scheduler ends with a step in which nothing is computed.
        if "num_requests" in self._seen:
            self.steps.append({"seconds": time.perf_counter() - start, **self._seen})
        return result

    def _target(
        self, original: Callable[..., Any], scheduler_output: "SchedulerOutput", *args: Any, **kwargs: Any
    ) -> Any:
        scheduled = scheduler_output.num_scheduled_tokens
        drafts = scheduler_output.scheduled_spec_decode_tokens
        if scheduled:
            longer = any(count != 1 + len(drafts.get(name, ())) for name, count in scheduled.items())
            self._seen["in_prompt"] = longer or bool(scheduler_output.scheduled_new_reqs)
            self._seen["num_requests"], self._seen["num_tokens"] = len(scheduled), sum(scheduled.values())
        return original(scheduler_output, *args, **kwargs)

    def _timed(self, name: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        start = self._now()
        result = original(*args, **kwargs)
        self._seen[name] = self._now() - start
        return result

    def _now(self) -> float:
        if self._waits:
            torch.accelerator.synchronize()
        return time.perf_counter()


def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    setattr(owner, name, functools.partial(replacement, getattr(owner, name)))
