"""Host time that `method: vllm` adds to vLLM's schedulers, per step, without a model.

    python -m benchmarks.native_host [FILE.json]

A pretended device answers each step at once: it drafts K tokens and accepts 60% of them. The time is that of the
calls `schedule`, `update_from_output` and `update_draft_token_ids`. All arms take turns step by step; medians over
blocks of 8 steps are compared, with vLLM's scheduler of the same speculation, and without speculation. The policy
`optimal` sees steps of 6 ms, so that it drafts in each.

vLLM's own arms run twice. Where both differ by more than 15%, the machine is not quiet: nothing is written, exit 2.
"""

import copy
import gc
import json
import random
import statistics
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request

from tests.engine.lengths import equal_steps
from tests.fixed_length import native
from tests.unit.scheduling.cases import scheduler_over
from vllm_spec_plugin import speculative_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.scheduling.native import NativeAsyncScheduler, NativeScheduler
from vllm_spec_tools.report.provenance import provenance

K, BLOCK_SIZE, BLOCKS, TEXT, STEPS, ROUNDS, ACCEPTED = 4, 16, 40_000, 2048, 160, 5, 0.6
STEP_SECONDS, IN_BLOCK, REQUESTS = 6e-3, 8, (1, 8, 64, 256)
MOST_NOISE = 0.15
STOCK = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5}
# Without a policy the scheduler is vLLM's.
AGAIN = " again"
ARMS: dict[str, tuple[dict[str, Any] | None, str | None, dict[str, Any]]] = {
    "none": (None, None, {}),
    "spec off for all": (STOCK, "optimal", {"spec": "off"}),
    "vllm": (STOCK, None, {}),
    "fixed": (STOCK, "fixed", {}),
    "optimal": (STOCK, "optimal", {}),
}
COMPARED = {"spec off for all": "none", "fixed": "vllm", "optimal": "vllm"}
REFERENCES = tuple(dict.fromkeys(COMPARED.values()))


class Driver:
    """A scheduler with its requests, and the pretended device."""

    def __init__(self, arm: str, is_async: bool, num_requests: int, seed: int) -> None:
        stock, policy, options = ARMS[arm]
        given = {**stock, "num_speculative_tokens": K} if stock else None
        if policy:
            given = speculative_config(native(json.dumps(stock), K, policy))
        config = copy.copy(
            EngineArgs(
                model=str(model_path("target")),
                dtype="float32",
                enforce_eager=True,
                max_model_len=TEXT,
                max_num_seqs=256,
                max_num_batched_tokens=8192,
                speculative_config=given,
            ).create_engine_config()
        )
        config.scheduler_config.async_scheduling = is_async
        classes = (NativeScheduler, NativeAsyncScheduler) if policy else (Scheduler, AsyncScheduler)
        spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
        self.is_async, self.has_drafts = is_async, stock is not None
        self.scheduler = scheduler_over(classes[is_async], config, BLOCKS, spec, block_size=BLOCK_SIZE)
        hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
        for i in range(num_requests):
            params = SamplingParams(max_tokens=TEXT - 64, ignore_eos=True, extra_args=options if policy else None)
            self.scheduler.add_request(Request(str(i), [i] * 32, params, None, block_hasher=hasher))
        self._running, self._rng = deque[Any](), random.Random(seed)
        if is_async:
            self._running.append(self.scheduler.schedule())

    def step(self) -> float:
        """Runs a step; returns the scheduler's time."""
        scheduler = self.scheduler
        start = time.perf_counter()
        self._running.append(scheduler.schedule())
        took = time.perf_counter() - start
        done = self._running.popleft()
        names = list(done.num_scheduled_tokens)
        sampled = []
        for name in names:
            accepted = 0
            planned = len(done.scheduled_spec_decode_tokens.get(name, ()))
            while accepted < planned and self._rng.random() < ACCEPTED:
                accepted += 1
            sampled.append([7] * (accepted + 1))
        outcome = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, sampled)
        drafts = DraftTokenIds(names, [[7] * done.num_spec_tokens_to_schedule for _ in names])
        start = time.perf_counter()
        scheduler.update_from_output(done, outcome)
        if self.has_drafts and not self.is_async:
            scheduler.update_draft_token_ids(drafts)
        return took + time.perf_counter() - start


def measure(is_async: bool, num_requests: int) -> dict[str, float]:
    """Returns medians of each arm's blocks of steps, and the difference of compared arms, in microseconds."""
    names = {arm: arm for arm in ARMS} | {f"{arm}{AGAIN}": arm for arm in REFERENCES}
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(ROUNDS):
        drivers = {name: Driver(arm, is_async, num_requests, number) for name, arm in names.items()}
        gc.collect()
        gc.disable()
        for _ in range(STEPS):
            for arm, driver in drivers.items():
                times[arm].append(driver.step())
        gc.enable()
    medians = {}
    for arm, own in times.items():
        blocks = [statistics.mean(own[i : i + IN_BLOCK]) for i in range(0, len(own), IN_BLOCK)]
        medians[arm] = statistics.median(blocks) * 1e6
    added = {f"{arm} - {other}": medians[arm] - medians[other] for arm, other in COMPARED.items()}
    return {name: round(value, 1) for name, value in (medians | added).items()}


def disturbed(kind: str, num_requests: int, found: dict[str, float]) -> list[str]:
    """Returns what the two runs of an arm contradict each other in, in words."""
    return [
        f"{kind}, {num_requests} requests: {arm!r} took {found[arm]:.0f} and {found[arm + AGAIN]:.0f} microseconds"
        for arm in REFERENCES
        if max(found[arm], found[arm + AGAIN]) > (1 + MOST_NOISE) * min(found[arm], found[arm + AGAIN])
    ]


def main() -> int:
    """Measures all arms, prints medians in microseconds per step and writes them; returns the exit status."""
    init_none_hash(sha256)
    equal_steps(STEP_SECONDS)
    steps: dict[str, dict[str, dict[str, float]]] = {}
    problems: list[str] = []
    for is_async in (False, True):
        for num_requests in REQUESTS:
            kind = "asynchronous" if is_async else "synchronous"
            steps.setdefault(kind, {})[str(num_requests)] = found = measure(is_async, num_requests)
            problems += disturbed(kind, num_requests, found)
            print(kind, num_requests, found, flush=True)
    if problems:
        told = "; ".join(problems)
        print(f"error: {told}; allowed: {MOST_NOISE:.0%} apart: run it on a quiet machine", file=sys.stderr)
        return 2
    if len(sys.argv) > 1:
        origin = provenance([], 0, [], program="python -m benchmarks.native_host")
        results = {"provenance": origin, "arms": list(ARMS), "cells": [], "steps": steps}
        Path(sys.argv[1]).write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
