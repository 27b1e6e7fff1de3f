"""`vllm bench serve`, vLLM's own client."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtests.acceptance.compare.client_process import measured_by
from loadtests.acceptance.compare.figures import Tpot
from loadtests.acceptance.compare.workload import Workload, sharegpt
from vllm_spec_plugin.tools.serving import serving_environment


def run_vllm_bench(work: Workload, base_url: str, model: str, prefix: Path) -> Tpot:
    """Makes the requests with vLLM's client.

    Args:
        work: what to ask.
        base_url: of the server.
        model: its name, which is the folder of the tokenizer too.
        prefix: of the files that are written: the prompts, the result and the output.

    Raises:
        ClientError: it failed.
    """
    prompts, result, log = (prefix.with_suffix(suffix) for suffix in (".prompts.json", ".json", ".log"))
    prompts.write_text(sharegpt(work.prompts))
    command = _command(work, base_url, model, prompts, result)
    return measured_by("vllm bench serve", command, result, log, tpot_of, serving_environment(model))


def _command(work: Workload, base_url: str, model: str, prompts: Path, result: Path) -> list[str]:
    count = len(work.prompts)
    return [
        *(str(Path(sys.executable).parent / "vllm"), "bench", "serve", "--backend", "openai"),
        *("--base-url", base_url, "--model", model),
        *("--dataset-name", "sharegpt", "--dataset-path", str(prompts), "--disable-shuffle"),
        *("--num-prompts", str(count), "--sharegpt-output-len", str(work.num_tokens)),
        *("--max-concurrency", str(work.concurrency), "--temperature", "0", "--ignore-eos", "--disable-tqdm"),
        *("--save-result", "--result-dir", str(result.parent), "--result-filename", result.name),
    ]


def tpot_of(result: Mapping[str, Any]) -> Tpot:
    """What `--save-result` wrote.

    Raises:
        KeyError: something is missing.
    """
    return Tpot(
        median=float(result["median_tpot_ms"]),
        mean=float(result["mean_tpot_ms"]),
        requests=int(result["completed"]),
        failed=int(result["failed"]),
        tokens=int(result["total_output_tokens"]),
    )
