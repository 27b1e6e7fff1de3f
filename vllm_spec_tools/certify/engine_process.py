"""Runs an engine in a process of its own, see `engines.py`.

Its arguments are those of `vllm.LLM`, "speculative_config" being the path of a plugin.yaml or stock JSON, and "cores"
those that the process may use. "hooks" may name a module whose `install(arguments)` runs before the engine is built,
and whose `around(llm, job)` is a context manager that yields the notes of the job's result.
"""

import importlib
import json
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from vllm_spec_tools.certify.jobs import Job, Output, Request, Result
from vllm_spec_tools.engine_child import answer_questions

# Labels over which values are added up.
_SUMMED = ("method", "model_name", "engine")


def _metrics(llm: Any) -> dict[str, float]:
    from prometheus_client import REGISTRY

    values = {m.name: float(m.value) for m in llm.get_metrics() if hasattr(m, "value")}
    values = {name: value for name, value in values.items() if not name.startswith("vllm_spec_plugin:")}
    for metric in REGISTRY.collect():
        for sample in metric.samples:
            if sample.name.startswith("vllm_spec_plugin:") and sample.name.endswith("_total"):
                labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k not in _SUMMED)
                name = sample.name + (f"{{{labels}}}" if labels else "")
                values[name] = values.get(name, 0.0) + sample.value
    return values


def _sampling_params(params: dict[str, Any]) -> Any:
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


def _rows(entries: Any) -> list[Any]:
    """Per token [vocab_size], from vLLM's flat logprobs of all tokens."""
    rows = []
    for start, end in zip(entries.start_indices, entries.end_indices, strict=True):
        token_ids = np.array(entries.token_ids[start:end])
        row = np.full(token_ids.max() + 1, -np.inf, np.float32)
        row[token_ids] = entries.logprobs[start:end]
        rows.append(row)
    return rows


def _output(o: Any) -> Output:
    is_flat = hasattr(o.logprobs, "start_indices")
    logprobs, rows = (None, _rows(o.logprobs)) if is_flat else (_logprobs(o.logprobs), None)
    return Output(list(o.token_ids), o.text, o.finish_reason, o.stop_reason, logprobs, rows)


def _prompt(request: Request) -> Any:
    return {"prompt_token_ids": list(request.prompt)}


def _generate(llm: Any, job: Job) -> tuple[list[list[Output]], list[Any]]:
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


def _generate_by_step(llm: Any, job: Job) -> tuple[list[list[Output]], list[Any]]:
    from vllm.sampling_params import RequestOutputKind

    outputs, answers = {}, {}
    for number, request in enumerate(job.requests):
        params = _sampling_params(request.params | {"output_kind": RequestOutputKind.DELTA})
        outputs[str(number)] = [Output([], "", "length", None, None) for _ in range(params.n)]
        llm.llm_engine.add_request(str(number), _prompt(request), params)
    while llm.llm_engine.has_unfinished_requests():
        for answer in llm.llm_engine.step():
            answers[answer.request_id] = answer
            for part in answer.outputs:
                output = outputs[answer.request_id][part.index]
                output.token_ids.extend(part.token_ids)
                output.steps.append(len(part.token_ids))
    return list(outputs.values()), [answers[name] for name in outputs]


def run(llm: Any, job: Job, hooks: Any) -> Result:
    """Runs one job to its end."""
    import torch

    torch.manual_seed(job.torch_seed)
    before, start = _metrics(llm), time.perf_counter()
    with hooks.around(llm, job) if hooks else nullcontext({}) as notes:
        outputs, answers = (_generate_by_step if job.by_step else _generate)(llm, job)
    seconds, after = time.perf_counter() - start, _metrics(llm)
    return Result(
        outputs=outputs,
        encoded=[tuple(llm.get_tokenizer().encode(text)) for text in job.texts],
        prompt_logprobs=[_logprobs(answer.prompt_logprobs) for answer in answers],
        metrics={name: value - before.get(name, 0) for name, value in after.items()},
        seconds=seconds,
        notes=notes,
    )


def _reasoning_parser(llm: Any) -> Any:
    config = llm.llm_engine.vllm_config
    name = config.structured_outputs_config.reasoning_parser
    # Some models name one themselves; without a tokenizer there is no text to look for its end in.
    if not name or config.model_config.skip_tokenizer_init:
        return None
    from vllm.reasoning import ReasoningParserManager

    return ReasoningParserManager.get_reasoning_parser(name)(llm.get_tokenizer())


def _facts(llm: Any) -> dict[str, Any]:
    config = llm.llm_engine.vllm_config
    model = config.model_config
    return {
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_model_len": model.max_model_len,
        "vocab_size": model.get_vocab_size(),
        "has_tokenizer": not model.skip_tokenizer_init,
        "reasoning_end": getattr(_reasoning_parser(llm), "end_token_id", None),
        "device": str(config.device_config.device_type),
        "kv_blocks": config.cache_config.num_gpu_blocks,
        "block_size": config.cache_config.block_size,
    }


def build(arguments: dict[str, Any]) -> tuple[Any, Any]:
    """The engine that the arguments describe, and its hooks."""
    from vllm import LLM

    from vllm_spec_plugin import speculative_config

    if cores := arguments.pop("cores", None):
        os.sched_setaffinity(0, cores)
    name = arguments.pop("hooks", "")
    hooks = importlib.import_module(name) if name else None
    if hooks:
        hooks.install(arguments)
    if config := arguments.pop("speculative_config", None):
        arguments["speculative_config"] = json.loads(config) if config.startswith("{") else speculative_config(config)
    if plugin := arguments.get("reasoning_parser_plugin"):
        from vllm.reasoning import ReasoningParserManager

        # As a server does; `LLM` looks for the parser before it reads the plugin.
        ReasoningParserManager.import_reasoning_parser(plugin)
    return LLM(**arguments), hooks


def start(arguments: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Job], Result]]:
    """Builds the engine; returns its facts, and the function that runs a job."""
    llm, hooks = build(arguments)
    return _facts(llm), lambda job: run(llm, job, hooks)


if __name__ == "__main__":
    answer_questions(start)
