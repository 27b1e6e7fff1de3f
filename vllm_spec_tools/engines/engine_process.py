"""Runs an engine in a process of its own, see `jobs.py`: `python -m vllm_spec_tools.engines.engine_process`.

Its arguments are those of `vllm.LLM`, "speculative_config" being the path of a plugin.yaml or vLLM's own, as a dict or
JSON, and "cores" those that the process may use. "hooks" may name a module whose `install(arguments)` runs before the
engine is built, and whose `around(llm, job)` is a context manager that yields the notes of the job's result.
"""

import functools
import importlib
import itertools
import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from vllm_spec_plugin.config.request_options import draft_options
from vllm_spec_tools.bench.load.closed_loop import ClosedLoop
from vllm_spec_tools.bench.records import EngineStep, LoadAnswer, LoadJob, PhaseAnswer
from vllm_spec_tools.engines.engine_child import answer_questions
from vllm_spec_tools.engines.jobs import PREEMPTIONS, CertifyRequest, Job, JobOutput, JobResult

if TYPE_CHECKING:
    from vllm import LLM, SamplingParams

    from vllm_spec_tools.engines.inspection import StepWatch

_WAKING_STEPS = 6
# Labels over which values are added up.
_SUMMED = ("method", "model_name", "engine")
_VERIFIED = "vllm_spec_plugin:verified_tokens_total"


def _metrics(llm: "LLM") -> dict[str, float]:
    from prometheus_client import REGISTRY

    own = "vllm_spec_plugin:"
    found = {m.name: float(m.value) for m in llm.get_metrics() if hasattr(m, "value") and not m.name.startswith(own)}
    values = defaultdict[str, float](float, found)
    for sample in (sample for metric in REGISTRY.collect() for sample in metric.samples):
        if sample.name.startswith(own) and sample.name.endswith("_total"):
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k not in _SUMMED)
            values[sample.name + (f"{{{labels}}}" if labels else "")] += sample.value
            if sample.name == _VERIFIED:
                values[f"verified:{sample.labels['method']}"] += sample.value
    return dict(values)


def _sampling_params(params: dict[str, Any]) -> "SamplingParams":
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    params = dict(params)
    if "structured_outputs" in params:
        params["structured_outputs"] = StructuredOutputsParams(**params["structured_outputs"])
    return SamplingParams(**params)


def _lora_requests(job: Job) -> Any:
    """The adapter of each request; None if no request has one, as vLLM allows them only where LoRA is enabled."""
    from vllm.lora.request import LoRARequest

    folders = sorted({request.lora for request in job.requests} - {""})
    ids = {folder: i for i, folder in enumerate(folders, start=1)}
    if not ids:
        return None
    return [LoRARequest(r.lora, ids[r.lora], r.lora) if r.lora else None for r in job.requests]


def _logprobs(entries: Any) -> Any:
    if entries is None:
        return None
    return [e and {token: value.logprob for token, value in e.items()} for e in entries]


def _output(o: Any) -> JobOutput:
    output, flat = JobOutput(list(o.token_ids), o.text, o.finish_reason, o.stop_reason, None), o.logprobs
    if not hasattr(flat, "start_indices"):
        output.logprobs = _logprobs(flat)
        return output
    # Per token [vocab_size], from vLLM's flat logprobs of all tokens.
    output.rows = []
    for start, end in zip(flat.start_indices, flat.end_indices, strict=True):
        token_ids = np.array(flat.token_ids[start:end])
        row = np.full(token_ids.max() + 1, -np.inf, np.float32)
        row[token_ids] = flat.logprobs[start:end]
        output.rows.append(row)
    return output


def _prompt(request: CertifyRequest) -> Any:
    return {"prompt_token_ids": list(request.prompt)}


def _generate(llm: "LLM", job: Job) -> tuple[list[list[JobOutput]], list[Any]]:
    if not job.requests:
        return [], []
    params = [_sampling_params(request.params) for request in job.requests]
    prompts = [_prompt(request) for request in job.requests]
    answers = llm.generate(prompts, params, use_tqdm=False, lora_request=_lora_requests(job))
    outputs = [[_output(o) for o in answer.outputs] for answer in answers]
    if parser := _reasoning_parser(llm):
        for output in (output for group in outputs for output in group):
            output.content = llm.get_tokenizer().decode(
                parser.extract_content_ids(output.token_ids), skip_special_tokens=True
            )
    return outputs, answers


def _generate_by_step(llm: "LLM", job: Job) -> tuple[list[list[JobOutput]], list[Any]]:
    from vllm.sampling_params import RequestOutputKind

    from vllm_spec_tools.engines.inspection import recorded_steps

    outputs, answers = {}, {}
    for number, request in enumerate(job.requests):
        params = _sampling_params(request.params | {"output_kind": RequestOutputKind.DELTA})
        outputs[str(number)] = [JobOutput([], "", "length", None, None) for _ in range(params.n)]
        llm.llm_engine.add_request(str(number), _prompt(request), params)
    with recorded_steps(llm) as steps:
        while llm.llm_engine.has_unfinished_requests():
            answer: Any
            for answer in llm.llm_engine.step():
                answers[answer.request_id] = answer
                for part in answer.outputs:
                    outputs[answer.request_id][part.index].token_ids.extend(part.token_ids)
    for name, group in outputs.items():
        for index, output in enumerate(group):
            output.steps = steps[name, index]
    return list(outputs.values()), [answers[name] for name in outputs]


class Session:
    """An engine and the questions that it answers."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """Builds the engine."""
        from vllm import LLM

        from vllm_spec_plugin import speculative_config

        if cores := arguments.pop("cores", None):
            os.sched_setaffinity(0, cores)
        name = arguments.pop("hooks", "")
        self._hooks = importlib.import_module(name) if name else None
        if self._hooks:
            self._hooks.install(arguments)
        if isinstance(config := arguments.get("speculative_config"), str):
            arguments["speculative_config"] = (
                json.loads(config) if config.startswith("{") else speculative_config(config)
            )
        if plugin := arguments.get("reasoning_parser_plugin"):
            from vllm.reasoning import ReasoningParserManager

            # As a server does; `LLM` looks for the parser before it reads the plugin.
            ReasoningParserManager.import_reasoning_parser(plugin)
        self._llm = LLM(**({"disable_log_stats": False} | arguments))
        # Put in by the first job that asks for its steps: on some devices it costs time.
        self._watch: StepWatch | None = None

    def facts(self) -> dict[str, Any]:
        """Reads vLLM's own choices, the device, the tokenizer, and a token's bytes in the KV cache of a rank."""
        import torch

        from vllm_spec_tools.engines.inspection import kv_bytes_of_token

        config = self._llm.llm_engine.vllm_config
        model, device = config.model_config, str(config.device_config.device_type)
        return {
            "device": torch.cuda.get_device_name() if device == "cuda" else device,
            "runner": "V2" if config.use_v2_model_runner else "V1",
            "ranks": config.parallel_config.world_size,
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "max_model_len": config.model_config.max_model_len,
            "vocab_size": model.get_vocab_size(),
            "has_tokenizer": not model.skip_tokenizer_init,
            "reasoning_end": getattr(_reasoning_parser(self._llm), "end_token_id", None),
            "asynchronous_scheduling": bool(config.scheduler_config.async_scheduling),
            "compilation": config.compilation_config.mode.name,
            "prefix_caching": bool(config.cache_config.enable_prefix_caching),
            "kv_blocks": config.cache_config.num_gpu_blocks,
            "block_size": config.cache_config.block_size,
            "kv_bytes_per_token": kv_bytes_of_token(self._llm),
        }

    def run(self, job: Job) -> JobResult:
        """Runs one job to its end."""
        import torch

        llm = self._llm
        torch.manual_seed(job.torch_seed)
        before, start = _metrics(llm), time.perf_counter()
        with self._hooks.around(llm, job) if self._hooks else nullcontext({}) as notes:
            outputs, answers = (_generate_by_step if job.by_step else _generate)(llm, job)
        seconds, after = time.perf_counter() - start, _metrics(llm)
        return JobResult(
            outputs=outputs,
            encoded=[tuple(llm.get_tokenizer().encode(text)) for text in job.texts],
            prompt_logprobs=[_logprobs(answer.prompt_logprobs) for answer in answers],
            metrics={name: value - before.get(name, 0) for name, value in after.items()},
            seconds=seconds,
            notes=notes,
        )

    def load(self, job: LoadJob) -> LoadAnswer:
        """Runs a job of concurrent streams."""
        import torch

        from vllm_spec_tools.engines.inspection import SteppedEngine, StepWatch, speculation_counts

        prompts = {request.prompt for phase in job.phases for request in phase.requests}
        options = functools.partial(draft_options, job.spec_tokens, job.spec_method)
        engine = SteppedEngine(self._llm, prompts, options)
        if job.record_steps:
            self._watch = self._watch or StepWatch(self._llm)
            self._watch.clear()
        # Every round computes its prompts, however often they came before.
        self._llm.reset_prefix_cache()
        torch.manual_seed(job.seed)
        answers: list[PhaseAnswer] = []
        preempted = _metrics(self._llm)[PREEMPTIONS]
        cpu_start = time.process_time()
        for phase in job.phases:
            loop = ClosedLoop(engine, job.streams, phase)
            if not phase.is_pass:
                loop.ramp_up(1 if answers else _WAKING_STEPS)
            before = speculation_counts(self._llm)
            progress = loop.run()
            after = speculation_counts(self._llm)
            drafts, tokens, accepted, *by_position = (
                new - old for new, old in itertools.zip_longest(after, before, fillvalue=0)
            )
            answers.append(PhaseAnswer(progress, drafts, tokens, accepted, by_position))
        cpu_seconds = time.process_time() - cpu_start
        return LoadAnswer(
            cpu_seconds,
            answers,
            [EngineStep(**seen) for seen in self._watch.steps] if self._watch and job.record_steps else [],
            int(_metrics(self._llm)[PREEMPTIONS] - preempted),
        )

    def top_two(self, prompt: str, token_ids: Sequence[int], schema: str = "") -> dict[int, float]:
        """Log-probabilities of the two most likely tokens after a prompt and a beginning of its output, by token id.

        Args:
            schema: JSON schema of the output; empty is none. The output is generated again, as a schema begins with
                it. If rounding makes that another output, the schema does not count.
        """
        tokens, before = tuple(self._llm.get_tokenizer().encode(prompt)), list(token_ids)

        def generated(prompt: tuple[int, ...], **more: Any) -> JobOutput:
            params = {"temperature": 0.0, "logprobs": 2, "detokenize": False}
            [[output]] = _generate(self._llm, Job([CertifyRequest(prompt, params | more)]))[0]
            return output

        output = None
        if schema:
            output = generated(tokens, max_tokens=len(before) + 1, structured_outputs={"json": schema})
        if output is None or output.token_ids[:-1] != before:
            output = generated((*tokens, *before), max_tokens=1)
        assert output.logprobs is not None
        return output.logprobs[-1]


def _reasoning_parser(llm: "LLM") -> Any:
    config = llm.llm_engine.vllm_config
    name = config.structured_outputs_config.reasoning_parser
    # Some models name one themselves; without a tokenizer there is no text to look for its end in.
    if not name or config.model_config.skip_tokenizer_init:
        return None
    from vllm.reasoning import ReasoningParserManager

    return ReasoningParserManager.get_reasoning_parser(name)(llm.get_tokenizer())


def build(arguments: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Builds an engine, which answers names of the session's methods with their arguments."""
    session = Session(arguments)
    return session.facts(), lambda question: getattr(session, question[0])(*question[1:])


if __name__ == "__main__":
    answer_questions(build)
