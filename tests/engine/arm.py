"""An engine in a process of its own: `python -m tests.engine.arm ENGINE`, started by `arms.py`.

ENGINE is a pickled dict of `vllm.LLM`'s arguments, "speculative_config" being the path of a
plugin.yaml or stock JSON, "check" whether the engine checks its KV blocks, and "generic_pass" whether a draft
model runs as it would on any device.
Each line on standard input names a pickled `Job` and the file its pickled `Result` is written to. vLLM
can't build two engines in one process.
"""

import os

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL=os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    VLLM_CPU_NUM_OF_RESERVED_CPU="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    TOKENIZERS_PARALLELISM="false",
)

import contextlib
import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

from tests.engine.jobs import Job, Output, Result


def _metrics(llm: Any) -> dict[str, float]:
    from prometheus_client import REGISTRY

    values = {m.name: float(m.value) for m in llm.get_metrics() if hasattr(m, "value")}
    values = {name: value for name, value in values.items() if not name.startswith("vllm_spec_plugin:")}
    for metric in REGISTRY.collect():
        for sample in metric.samples:
            if sample.name.startswith("vllm_spec_plugin:") and sample.name.endswith("_total"):
                labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "method")
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


def _logprobs(entries: Any) -> Any:
    if entries is None:
        return None
    return [e and {token: value.logprob for token, value in e.items()} for e in entries]


def run(llm: Any, job: Job) -> Result:
    """Runs one job to its end."""
    import torch

    from tests.engine import faults, recorder, sabotage

    prompts: list[Any] = [{"prompt_token_ids": list(request.prompt)} for request in job.requests]
    params = [_sampling_params(request.params) for request in job.requests]
    torch.manual_seed(job.torch_seed)
    before, start = _metrics(llm), time.perf_counter()
    with contextlib.ExitStack() as stack:
        if job.sabotage:
            stack.enter_context(sabotage.SABOTAGES[job.sabotage]())
        if job.fault:
            stack.enter_context(faults.in_force(job.fault))
        drafting = stack.enter_context(recorder.recording(job.record_drafting)) if job.record_drafting else []
        answers = llm.generate(prompts, params, use_tqdm=False)
    seconds, after = time.perf_counter() - start, _metrics(llm)
    return Result(
        outputs=[
            [
                Output(list(o.token_ids), o.text, o.finish_reason, o.stop_reason, _logprobs(o.logprobs))
                for o in answer.outputs
            ]
            for answer in answers
        ],
        prompt_logprobs=[_logprobs(answer.prompt_logprobs) for answer in answers],
        metrics={name: value - before.get(name, 0) for name, value in after.items()},
        seconds=seconds,
        drafting=drafting,
        draft_pass=_draft_pass(llm),
    )


def _draft_pass(llm: Any) -> str:
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    engine = getattr(getattr(worker.model_runner, "drafter", None), "engine", None)
    return "" if engine is None else engine.how


def main() -> None:
    """Builds the engine and serves jobs until standard input ends."""
    from vllm import LLM

    import vllm_spec_plugin
    from tests.engine import faults, integrity
    from vllm_spec_plugin.compat.draft_pass import DraftPass
    from vllm_spec_plugin.worker import draft_engine

    arguments = pickle.loads(Path(sys.argv[1]).read_bytes())
    if arguments.pop("check"):
        integrity.install()
    if arguments.pop("generic_pass"):
        draft_engine.draft_pass = DraftPass  # type: ignore[attr-defined]
    if config := arguments.pop("speculative_config", None):
        if config.startswith("{"):
            arguments["speculative_config"] = json.loads(config)
        else:
            faults.install()
            arguments["speculative_config"] = vllm_spec_plugin.speculative_config(config)
    llm = LLM(**arguments)
    for line in sys.stdin:
        job_path, result_path = line.rstrip("\n").split("\t")
        result = run(llm, pickle.loads(Path(job_path).read_bytes()))
        partial = Path(result_path + ".partial")
        partial.write_bytes(pickle.dumps(result))
        partial.rename(result_path)


if __name__ == "__main__":
    main()
