"""An engine in a process of its own: `python -m vllm_spec_plugin.tools.bench.arm_process ENGINE FD`.

ENGINE is a JSON file: `vllm.LLM`'s arguments, "speculative_config" being the path of a plugin.yaml or vLLM's own
settings, and "without" a mechanism of the policy to switch off. Each line on standard input is a command, each line
written to file descriptor FD an answer, both JSON; the first answer comes unasked when the engine is ready. vLLM can't
build two engines in one process, and prints where it likes.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from vllm_spec_plugin.config.request_options import draft_options
from vllm_spec_plugin.tools.bench.drafting.parts import has_draft_model, timed_parts
from vllm_spec_plugin.tools.bench.drafting.stopwatch import replaced
from vllm_spec_plugin.tools.bench.host.records import HostAnswer, HostJob
from vllm_spec_plugin.tools.bench.load.closed_loop import ClosedLoop
from vllm_spec_plugin.tools.bench.load.records import LoadAnswer, LoadJob, PhaseAnswer
from vllm_spec_plugin.tools.bench.records import Answer, Job, Step

_WAKING_STEPS = 6


class Session:
    """An engine that answers commands."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """Builds the engine.

        Args:
            arguments: of `vllm.LLM`; "speculative_config" may be the path of a plugin.yaml, and "without" one of
                `replay.ablation.MECHANISMS`, which stays off.
        """
        from vllm_spec_plugin import speculative_config
        from vllm_spec_plugin.compat.inspection import LLM, live_runner

        arguments = dict(arguments)
        if mechanism := arguments.pop("without", None):
            _switch_off(mechanism)
        if isinstance(arguments.get("speculative_config"), str):
            arguments["speculative_config"] = speculative_config(arguments["speculative_config"])
        self._llm = LLM(**arguments, disable_log_stats=False)
        self._runner = live_runner(self._llm)
        # Put in by the first job that asks for its steps: on some devices it costs time.
        self._watch: Any = None

    def facts(self) -> dict[str, Any]:
        """What vLLM chose by itself, and what a token takes in its KV cache."""
        from vllm_spec_plugin.compat.inspection import kv_bytes_per_token

        config = self._llm.llm_engine.vllm_config
        return {
            "device": str(self._runner.device),
            "dtype": str(config.model_config.dtype),
            "max_model_len": config.model_config.max_model_len,
            "asynchronous_scheduling": bool(config.scheduler_config.async_scheduling),
            "compilation": config.compilation_config.mode.name,
            "prefix_caching": bool(config.cache_config.enable_prefix_caching),
            "kv_bytes_per_token": kv_bytes_per_token(self._runner),
        }

    def run(self, job: Job) -> Answer:
        """Completes the job's prompts in one batch."""
        import torch

        from vllm_spec_plugin.compat.inspection import (
            SamplingParams,
            StepWatch,
            accepted_by_place,
            speculation_counts,
        )

        self._watch = self._watch or StepWatch(self._llm)
        # Every round computes its prompts, however often they came before.
        self._llm.reset_prefix_cache()
        torch.manual_seed(job.seed)
        params = [
            SamplingParams(
                temperature=job.temperature,
                max_tokens=job.num_tokens,
                ignore_eos=True,
                extra_args=draft_options(job.spec_tokens, job.spec_method, prediction),
            )
            for prediction in job.predictions or ("",) * len(job.prompts)
        ]
        before, before_by_place = speculation_counts(self._llm), accepted_by_place(self._llm)
        self._watch.clear()
        parts: dict[str, float] = {}
        start, cpu_start = time.perf_counter(), time.process_time()
        if job.profiled and has_draft_model(self._runner):
            with timed_parts(self._runner) as parts:
                results = self._llm.generate(list(job.prompts), params, use_tqdm=False)
        else:
            results = self._llm.generate(list(job.prompts), params, use_tqdm=False)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        after = speculation_counts(self._llm)
        drafts, draft_tokens, accepted = (new - old for old, new in zip(before, after, strict=True))
        by_place = itertools.zip_longest(accepted_by_place(self._llm), before_by_place, fillvalue=0)
        return Answer(
            seconds,
            cpu_seconds,
            [list(result.prompt_token_ids) for result in results],
            [list(result.outputs[0].token_ids) for result in results],
            [Step(**seen) for seen in self._watch.steps],
            drafts,
            draft_tokens,
            accepted,
            dict(parts),
            [new - old for new, old in by_place],
        )

    def load(self, job: LoadJob) -> LoadAnswer:
        """Runs a job of concurrent streams."""
        import torch

        from vllm_spec_plugin.compat.inspection import SteppedEngine, speculation_counts

        prompts = {request.prompt for phase in job.phases for request in phase.requests}
        options = functools.partial(draft_options, job.spec_tokens, job.spec_method)
        engine = SteppedEngine(self._llm, prompts, options)
        self._llm.reset_prefix_cache()
        torch.manual_seed(job.seed)
        answers: list[PhaseAnswer] = []
        cpu_start = time.process_time()
        for phase in job.phases:
            loop = ClosedLoop(engine, job.streams, phase)
            loop.ramp_up(1 if answers else _WAKING_STEPS)
            before = speculation_counts(self._llm)
            progress = loop.run()
            after = speculation_counts(self._llm)
            counts = (new - old for old, new in zip(before, after, strict=True))
            answers.append(PhaseAnswer(progress, *counts))
        return LoadAnswer(time.process_time() - cpu_start, answers)

    def host(self, job: HostJob) -> HostAnswer:
        """Measures decoding steps by part."""
        from vllm_spec_plugin.tools.bench.host.measuring import measure_steps

        self._llm.reset_prefix_cache()
        return measure_steps(self._llm, self._runner, job)

    def answers(self, prompts: dict[str, int]) -> list[str]:
        """Answers prompts greedily in one batch; takes the number of output tokens of each."""
        from vllm_spec_plugin.compat.inspection import SamplingParams

        params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in prompts.values()]
        results = self._llm.generate(list(prompts), params, use_tqdm=False)
        return [result.outputs[0].text for result in results]

    def gap(self, prompt: str, token_ids: list[int], candidates: list[int]) -> float:
        """How far apart two tokens' log-probabilities are after a prompt and a beginning of its output.

        Infinite if one of them is far from likely.
        """
        from vllm_spec_plugin.compat.inspection import SamplingParams

        text = self._llm.get_tokenizer().encode(prompt) + token_ids
        params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=8)
        result = self._llm.generate({"prompt_token_ids": text}, params, use_tqdm=False)[0]
        logprobs = result.outputs[0].logprobs[0]
        if not all(token in logprobs for token in candidates):
            return float("inf")
        first, second = (float(logprobs[token].logprob) for token in candidates)
        return abs(first - second)

    def answer(self, command: dict[str, Any]) -> Any:
        """Does what a command says: the answer, as JSON takes it."""
        if "gap" in command:
            return self.gap(**command["gap"])
        if "answers" in command:
            return self.answers(command["answers"])
        if "host" in command:
            return dataclasses.asdict(self.host(HostJob(**command["host"])))
        if "load" in command:
            return dataclasses.asdict(self.load(TypeAdapter(LoadJob).validate_python(command["load"])))
        return dataclasses.asdict(self.run(Job(**command["run"])))


def _switch_off(mechanism: str) -> None:
    """Has the policy be made, and serve, without a mechanism, for as long as the process lives."""
    from vllm_spec_plugin.scheduling import scheduler

    # Kept by the functions that it replaces.
    switched_off = contextlib.ExitStack()

    def without(create: Callable[..., Any]) -> Callable[..., Any]:
        def create_without(*args: Any) -> Any:
            # Imported here, after vLLM's worker has started: that looks into all loaded modules, and fails on numba's.
            from vllm_spec_plugin.tools.bench.replay.ablation import MECHANISMS

            switched_off.enter_context(MECHANISMS[mechanism]())
            return create(*args)

        return create_without

    switched_off.enter_context(replaced(scheduler, "create_control", without))


def main(session_type: type[Session] = Session) -> None:
    """Builds the engine and answers commands until standard input ends.

    Args:
        session_type: knows the commands.
    """
    file_descriptor = int(sys.argv[2])
    os.set_inheritable(file_descriptor, False)
    with os.fdopen(file_descriptor, "w") as answers:

        def answer(value: Any) -> None:
            print(json.dumps(value), file=answers, flush=True)

        session = session_type(json.loads(Path(sys.argv[1]).read_text()))
        answer(session.facts())
        for line in sys.stdin:
            answer(session.answer(json.loads(line)))


if __name__ == "__main__":
    main()
