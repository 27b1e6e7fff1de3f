"""A running engine in this process: its parts, and how long they take."""

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
from vllm import LLM, SamplingParams

from vllm_spec_plugin.bench.records import Step

__all__ = ["LLM", "SamplingParams", "StepWatch", "live_runner", "speculation_counts"]


def live_runner(llm: Any) -> Any:
    """The model runner of a `vllm.LLM` without processes of its own (`VLLM_ENABLE_V1_MULTIPROCESSING=0`)."""
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner


def speculation_counts(llm: Any) -> tuple[int, int, int]:
    """Drafts verified, their tokens, and those accepted, since the engine started; needs `disable_log_stats=False`."""
    values = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
    drafts, draft_tokens, accepted = (
        int(values.get(f"vllm:spec_decode_num_{name}", 0)) for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    return drafts, draft_tokens, accepted


class StepWatch:
    """Notes what each step of an engine held and how long its parts took.

    On a device that computes while Python goes on, drafting is waited for, before and after: the parts
    are right, the whole is slower than without the watch.

    Attributes:
        steps: those since the last `clear`.
    """

    def __init__(self, llm: Any) -> None:
        """Looks at every step of `llm` from now on."""
        self.steps: list[Step] = []
        self._seen: dict[str, Any] = {}
        runner = live_runner(llm)
        self._waits = runner.device.type != "cpu"
        _replace(llm.llm_engine, "step", self._whole)
        _replace(runner, "execute_model", self._target)
        if hasattr(runner, "drafter"):
            _replace(runner, "propose_draft_token_ids", self._drafting)
            # Ours is called `draft`; its `propose` is there for vLLM to look at.
            name = "draft" if hasattr(runner.drafter, "draft") else "propose"
            _replace(runner.drafter, name, self._proposer)
        if (trees := getattr(runner, "tree_steps", None)) is not None:
            for name in ("prepare", "metadata", "join"):
                _replace(trees, name, self._tree)
            _replace(trees.attention, "write_shared", self._tree)

    def clear(self) -> None:
        """Forgets the steps so far."""
        self.steps = []

    def _whole(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._seen = {"num_drafted": 0, "drafting_seconds": 0.0, "proposer_seconds": 0.0, "tree_seconds": 0.0}
        start = time.perf_counter()
        result = original(*args, **kwargs)
        # vLLM's asynchronous scheduler ends with a step in which nothing is computed.
        if "num_requests" in self._seen:
            self.steps.append(Step(seconds=time.perf_counter() - start, **self._seen))
        return result

    def _target(self, original: Callable[..., Any], scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        scheduled = scheduler_output.num_scheduled_tokens
        drafts = scheduler_output.scheduled_spec_decode_tokens
        if scheduled:
            longer = any(count != 1 + len(drafts.get(name, ())) for name, count in scheduled.items())
            self._seen["in_prompt"] = longer or bool(scheduler_output.scheduled_new_reqs)
            self._seen["num_requests"], self._seen["num_tokens"] = len(scheduled), sum(scheduled.values())
        return original(scheduler_output, *args, **kwargs)

    def _drafting(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        start = self._now()
        drafts = original(*args, **kwargs)
        self._seen["drafting_seconds"] = self._now() - start
        self._seen["num_drafted"] = max((len(draft) for draft in drafts), default=0)
        return drafts

    def _proposer(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        start = self._now()
        result = original(*args, **kwargs)
        self._seen["proposer_seconds"] = self._now() - start
        return result

    def _tree(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        start = self._now()
        result = original(*args, **kwargs)
        self._seen["tree_seconds"] += self._now() - start
        return result

    def _now(self) -> float:
        if self._waits:
            torch.accelerator.synchronize()
        return time.perf_counter()


def _replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    setattr(owner, name, functools.partial(replacement, getattr(owner, name)))
