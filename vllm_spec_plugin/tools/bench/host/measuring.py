"""Measures an engine's decoding steps, in the engine's process."""

import functools
import time
from collections.abc import Callable
from typing import Any

from vllm_spec_plugin.config.request_options import draft_options
from vllm_spec_plugin.tools.bench.host.parts import MODELS, PARTS, timed_steps
from vllm_spec_plugin.tools.bench.host.records import HostAnswer, HostJob
from vllm_spec_plugin.tools.bench.host.script import next_tokens, prompt

_PROMPT_TOKENS = 32
# Steps after the last prefill that do not count: caches fill, policies settle.
_WARM_UP_STEPS = 12


def measure_steps(llm: Any, runner: Any, job: HostJob) -> HostAnswer:
    """Measures steady decoding steps of requests with a scripted text.

    Args:
        llm: `vllm.LLM` without processes of its own, without requests.
        runner: its model runner.
        job: what to measure.
    """
    from vllm_spec_plugin.compat.inspection import SteppedEngine, speculation_counts
    from vllm_spec_plugin.compat.scripted_target import scripted_target

    vocab_size = runner.model_config.get_vocab_size()
    script = functools.partial(next_tokens, vocab_size=vocab_size, repeats=job.repeats)
    engine = SteppedEngine(llm, (), functools.partial(draft_options, job.spec_tokens, None))
    num_tokens = runner.max_model_len - _PROMPT_TOKENS
    start = time.process_time()
    with scripted_target(runner, script, is_computed=job.is_computed):
        names = [
            engine.add_tokens(prompt(row, _PROMPT_TOKENS, vocab_size, repeats=job.repeats), job.temperature, num_tokens)
            for row in range(job.num_requests)
        ]
        begun: set[str] = set()
        while len(begun) < len(names):
            begun.update(name for name, token_ids, _ in engine.step() if token_ids)
        for _ in range(_WARM_UP_STEPS):
            engine.step()
        before = speculation_counts(llm)
        wall, cpu, host, output_tokens = _whole_steps(llm, engine, job.num_steps)
        drafted = speculation_counts(llm)[1] - before[1]
        wall_parts, cpu_parts = (
            _steps_by_part(llm, engine, job.num_steps, clock) for clock in (time.perf_counter, time.thread_time)
        )
        engine.abort(names)
    per_request = 1 / (job.num_requests * job.num_steps)
    return HostAnswer(
        time.process_time() - start,
        wall,
        cpu,
        host,
        wall_parts,
        cpu_parts,
        output_tokens * per_request,
        drafted * per_request,
    )


def _whole_steps(llm: Any, engine: Any, num_steps: int) -> tuple[list[float], list[float], list[float], int]:
    wall, cpu, host, num_output = [], [], [], 0
    with timed_steps(llm.llm_engine, time.thread_time, MODELS) as stopwatch:
        for _ in range(num_steps):
            stopwatch.seconds.clear()
            start, cpu_start = time.perf_counter(), time.thread_time()
            outputs = engine.step()
            cpu.append(time.thread_time() - cpu_start)
            wall.append(time.perf_counter() - start)
            host.append(cpu[-1] - sum(stopwatch.seconds.values()))
            num_output += sum(len(token_ids) for _, token_ids, _ in outputs)
    return wall, cpu, host, num_output


def _steps_by_part(llm: Any, engine: Any, num_steps: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    with timed_steps(llm.llm_engine, clock, PARTS) as stopwatch:
        for _ in range(num_steps):
            stopwatch.seconds.clear()
            engine.step()
            for part, seconds in found.items():
                seconds.append(stopwatch.seconds[part])
    return found
