"""An engine in a process of its own, see `arm.py`: `python -m vllm_spec_tools.bench.arm_process`."""

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

from vllm_spec_plugin.config.request_options import draft_options
from vllm_spec_tools.bench.load.closed_loop import ClosedLoop
from vllm_spec_tools.bench.records import Answer, Job, LoadAnswer, LoadJob, PhaseAnswer, Step
from vllm_spec_tools.engine_child import answer_questions

_WAKING_STEPS = 6


class Session:
    """An engine and the calls that it answers."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """Builds the engine.

        Args:
            arguments: of `vllm.LLM`; "speculative_config" may be the path of a plugin.yaml.
        """
        from vllm_spec_plugin import speculative_config
        from vllm_spec_tools.inspection import LLM

        arguments = dict(arguments)
        if isinstance(arguments.get("speculative_config"), str):
            arguments["speculative_config"] = speculative_config(arguments["speculative_config"])
        self._llm = LLM(**arguments, disable_log_stats=False)
        # Put in by the first job that asks for its steps: on some devices it costs time.
        self._watch: Any = None

    def facts(self) -> dict[str, Any]:
        """What vLLM chose by itself, the device, and what a token takes in the KV cache of a rank."""
        import torch

        from vllm_spec_tools.inspection import kv_bytes_of_token

        config = self._llm.llm_engine.vllm_config
        device = str(config.device_config.device_type)
        return {
            "device": torch.cuda.get_device_name() if device == "cuda" else device,
            "ranks": config.parallel_config.world_size,
            "dtype": str(config.model_config.dtype),
            "max_model_len": config.model_config.max_model_len,
            "asynchronous_scheduling": bool(config.scheduler_config.async_scheduling),
            "compilation": config.compilation_config.mode.name,
            "prefix_caching": bool(config.cache_config.enable_prefix_caching),
            "kv_bytes_per_token": kv_bytes_of_token(self._llm),
        }

    def run(self, job: Job) -> Answer:
        """Completes the job's prompts in one batch."""
        import torch

        from vllm_spec_tools.inspection import (
            SamplingParams,
            StepWatch,
            accepted_by_position,
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
        before, before_by_position = speculation_counts(self._llm), accepted_by_position(self._llm)
        self._watch.clear()
        start, cpu_start = time.perf_counter(), time.process_time()
        results = self._llm.generate(list(job.prompts), params, use_tqdm=False)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        after = speculation_counts(self._llm)
        drafts, draft_tokens, accepted = (new - old for old, new in zip(before, after, strict=True))
        by_position = itertools.zip_longest(accepted_by_position(self._llm), before_by_position, fillvalue=0)
        return Answer(
            seconds,
            cpu_seconds,
            [list(result.prompt_token_ids) for result in results],
            [list(result.outputs[0].token_ids) for result in results],
            [Step(**seen) for seen in self._watch.steps],
            drafts,
            draft_tokens,
            accepted,
            [new - old for new, old in by_position],
        )

    def load(self, job: LoadJob) -> LoadAnswer:
        """Runs a job of concurrent streams."""
        import torch

        from vllm_spec_tools.inspection import SteppedEngine, speculation_counts

        prompts = {request.prompt for phase in job.phases for request in phase.requests}
        options = functools.partial(draft_options, job.spec_tokens, job.spec_method)
        engine = SteppedEngine(self._llm, prompts, options)
        self._llm.reset_prefix_cache()
        torch.manual_seed(job.seed)
        answers: list[PhaseAnswer] = []
        cpu_start = time.process_time()
        for phase in job.phases:
            before = speculation_counts(self._llm)
            loop = ClosedLoop(engine, job.streams, phase)
            if not phase.is_pass:
                loop.ramp_up(1 if answers else _WAKING_STEPS)
                before = speculation_counts(self._llm)
            progress = loop.run()
            after = speculation_counts(self._llm)
            counts = (new - old for old, new in zip(before, after, strict=True))
            answers.append(PhaseAnswer(progress, *counts))
        return LoadAnswer(time.process_time() - cpu_start, answers)

    def top_two(self, prompt: str, token_ids: list[int]) -> dict[int, float]:
        """Log-probabilities of the two most likely tokens after a prompt and a beginning of its output, by token id."""
        from vllm_spec_tools.inspection import SamplingParams

        text = self._llm.get_tokenizer().encode(prompt) + token_ids
        params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=2)
        result = self._llm.generate({"prompt_token_ids": text}, params, use_tqdm=False)[0]
        return {token: float(value.logprob) for token, value in result.outputs[0].logprobs[0].items()}


def _build(arguments: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Builds an engine, which answers names of the session's methods with their arguments."""
    session = Session(arguments)
    return session.facts(), lambda question: getattr(session, question[0])(*question[1:])


if __name__ == "__main__":
    answer_questions(_build)
