"""`vllm bench serve`, vLLM's own client."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtests.acceptance.child import child, last_line
from loadtests.acceptance.compare.figures import Tpot
from loadtests.acceptance.compare.workload import Workload, sharegpt
from vllm_spec_plugin.serving import serving_environment


class VllmBenchError(RuntimeError):
    """`vllm bench serve` failed; str() shows the end of its output."""


def run_vllm_bench(work: Workload, base_url: str, model: str, prefix: Path) -> Tpot:
    """Makes the requests with vLLM's client.

    Args:
        work: what to ask.
        base_url: of the server.
        model: its name, which is the folder of the tokenizer too.
        prefix: of the files that are written: the prompts, the result and the output.

    Raises:
        VllmBenchError: it failed.
    """
    prompts, result, log = (prefix.with_suffix(suffix) for suffix in (".prompts.json", ".json", ".log"))
    prompts.write_text(sharegpt(work.prompts))
    result.unlink(missing_ok=True)
    with child(_command(work, base_url, model, prompts, result), log, serving_environment(model)) as bench:
        status = bench.wait()
    try:
        return tpot_of(json.loads(result.read_text()))
    except (OSError, ValueError, KeyError) as error:
        raise VllmBenchError(
            f"vllm bench serve ended with {status} and no result ({error!r}); log: {log}; its last line: "
            f"{last_line(log)}"
        ) from None


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
