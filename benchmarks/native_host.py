"""Host time that `method: vllm` adds to vLLM's schedulers, per step, without a model.

    python -m benchmarks.native_host [FILE.json]

A pretended device answers each step at once: it drafts K tokens and accepts 60% of them. The time is that of the
calls `schedule`, `update_from_output` and `update_draft_token_ids`; arms take turns, medians over steps are compared.
"""

import copy
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

from tests.fixed_length import native
from tests.unit.scheduling.cases import scheduler_over
from vllm_spec_plugin import speculative_config
from vllm_spec_plugin.scheduling.native import NativeAsyncScheduler, NativeScheduler
from vllm_spec_plugin.tools.demo import model_path

K, BLOCK_SIZE, BLOCKS, TEXT, STEPS, ROUNDS, ACCEPTED = 4, 16, 40_000, 2048, 150, 3, 0.6
STOCK = {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5}
ARMS: dict[str, tuple[type, type, str | None, dict[str, Any]]] = {
    "vllm": (Scheduler, AsyncScheduler, None, {}),
    "optimal": (NativeScheduler, NativeAsyncScheduler, "optimal", {}),
    "fixed": (NativeScheduler, NativeAsyncScheduler, "fixed", {}),
    "spec off for all": (NativeScheduler, NativeAsyncScheduler, "optimal", {"spec": "off"}),
}


def make(arm: str, is_async: bool, num_requests: int) -> Any:
    """Creates the scheduler of an arm, with its requests."""
    sync_cls, async_cls, policy, options = ARMS[arm]
    given = (
        {**STOCK, "num_speculative_tokens": K}
        if policy is None
        else speculative_config(native(json.dumps(STOCK), K, policy))
    )
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
    spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
    scheduler = scheduler_over(async_cls if is_async else sync_cls, config, BLOCKS, spec, block_size=BLOCK_SIZE)
    hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
    for i in range(num_requests):
        params = SamplingParams(max_tokens=TEXT - 64, ignore_eos=True, extra_args=options if policy else None)
        scheduler.add_request(Request(str(i), [i] * 32, params, None, block_hasher=hasher))
    return scheduler


def seconds_per_step(scheduler: Any, is_async: bool, num_steps: int, rng: random.Random) -> list[float]:
    """Runs steps; returns the scheduler's time in each."""
    found, running = [], deque[Any]()
    for _ in range(num_steps):
        start = time.perf_counter()
        output = scheduler.schedule()
        took = time.perf_counter() - start
        running.append(output)
        if is_async and len(running) < 2:
            continue
        done = running.popleft()
        names = list(done.num_scheduled_tokens)
        sampled = []
        for name in names:
            accepted = 0
            planned = len(done.scheduled_spec_decode_tokens.get(name, ()))
            while accepted < planned and rng.random() < ACCEPTED:
                accepted += 1
            sampled.append([7] * (accepted + 1))
        outcome = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, sampled)
        drafts = DraftTokenIds(names, [[7] * done.num_spec_tokens_to_schedule for _ in names])
        start = time.perf_counter()
        scheduler.update_from_output(done, outcome)
        if not is_async:
            scheduler.update_draft_token_ids(drafts)
        found.append(took + time.perf_counter() - start)
    return found


def main() -> None:
    """Measures all arms, and prints or writes medians in microseconds per step."""
    init_none_hash(sha256)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for is_async in (False, True):
        for num_requests in (1, 64, 256):
            times: dict[str, list[float]] = {arm: [] for arm in ARMS}
            for number in range(ROUNDS):
                for arm in ARMS:
                    scheduler = make(arm, is_async, num_requests)
                    times[arm] += seconds_per_step(scheduler, is_async, STEPS, random.Random(number))[20:]
            medians = {arm: statistics.median(own) * 1e6 for arm, own in times.items()}
            kind = "asynchronous" if is_async else "synchronous"
            results.setdefault(kind, {})[str(num_requests)] = {arm: round(value, 1) for arm, value in medians.items()}
            print(kind, num_requests, {arm: f"{value:.0f} us" for arm, value in medians.items()}, flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
