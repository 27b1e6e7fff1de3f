"""Runs vLLM's own drafters with the plugin's draft lengths (`method: vllm`) on a target of the matrix."""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.engine.arms import ENVIRONMENT, Engine
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.tiny import repeating_prompts
from tests.engine.v2 import runner_environment
from tests.matrix.cells import EXACT, REFUSED, UNTESTED, WRONG, Cell, Row, greedy_faults, refusal
from vllm_spec_tools.engines.engine_child import EngineError
from vllm_spec_tools.engines.jobs import EngineProcess

# Verdict where vLLM does not start without the plugin either.
NOT_RUNNABLE = "not runnable here"
_K, _TIMEOUT_SECONDS = 4, 600.0
# Requests and output tokens; V2's kernels run in an interpreter.
_SIZES = {"v1": (16, 60), "v2": (8, 24)}


@dataclasses.dataclass(frozen=True)
class Column:
    """One of vLLM's ways of drafting, on a runner."""

    title: str
    config: Mapping[str, Any]  # vLLM's speculative config, without weights and number of tokens.
    weights: str = ""  # Which "model" it names: "draft" or "head".
    runner: str = "v1"

    def stock(self, weights: Mapping[str, Path]) -> dict[str, Any]:
        """vLLM's speculative config without the number of tokens."""
        return {**self.config, **({"model": str(weights[self.weights])} if self.weights else {})}


_NGRAM = {"prompt_lookup_min": 1, "prompt_lookup_max": 3}
COLUMNS = {
    "native_ngram": Column("n-gram, V1", {"method": "ngram", **_NGRAM}),
    "native_draft_model": Column("draft model, V1", {"method": "draft_model"}, "draft"),
    "native_eagle3": Column("EAGLE-3 head, V1", {"method": "eagle3"}, "head"),
    "native_mtp": Column("MTP, V1", {"method": "mtp"}),
    "v2_ngram_gpu": Column("n-gram, V2", {"method": "ngram_gpu", **_NGRAM}, runner="v2"),
    "v2_draft_model": Column("draft model, V2", {"method": "draft_model"}, "draft", "v2"),
    "v2_eagle3": Column("EAGLE-3 head, V2", {"method": "eagle3"}, "head", "v2"),
    "v2_mtp": Column("MTP, V2", {"method": "mtp"}, runner="v2"),
}
# Run on V2, too: full attention, windows, latent attention, recurrent state, an MTP layer.
_ON_V2 = {"llama", "bundled", "gemma3", "deepseek_v2", "granite_moe_hybrid", "qwen3_next", "mimo"}
# A head with random weights is hardly ever right: the bundled one, and where vLLM has none.
_WITH_HEADS = {"bundled", "gemma3"}


def columns_of(row: Row) -> list[str]:
    """The keys of `COLUMNS` that a row is run with."""
    if row.lora:
        return []

    def applies(column: Column) -> bool:
        if column.runner == "v2" and row.architecture not in _ON_V2:
            return False
        return {"eagle3": row.architecture in _WITH_HEADS, "mtp": row.architecture == "mimo"}.get(
            column.config["method"], True
        )

    return [name for name, column in COLUMNS.items() if applies(column)]


def native_yaml(column: Column, weights: Mapping[str, Path]) -> str:
    """The text of a column's plugin.yaml."""
    proposer = {"method": "vllm", "config": column.stock(weights)}
    return yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": _K}})


def run_column(
    name: str,
    engine: Engine,
    weights: Mapping[str, Path],
    folder: Path,
    python: Callable[[Mapping[str, str]], Sequence[str]],
    plain: dict[str, JobResult],
) -> Cell:
    """Runs a cell.

    Args:
        name: a key of `COLUMNS`.
        engine: of the target, without speculation.
        weights: folders of the "draft" model and the "head".
        folder: for its files.
        python: returns the interpreter's command for an environment, see `ForkServer`.
        plain: results without speculation by runner, which are added if they are not there.
    """
    column, start = COLUMNS[name], time.perf_counter()
    environment = runner_environment(column.runner, {**os.environ, **ENVIRONMENT})
    config = folder / f"{name}.yaml"
    config.write_text(native_yaml(column, weights))

    def run(engine: Engine, label: str, job: Job) -> JobResult:
        arguments = dataclasses.replace(engine, runner=column.runner).arguments()
        command = python(environment)
        with EngineProcess(arguments, folder / f"{name}-{label}", environment, _TIMEOUT_SECONDS, command) as process:
            process.facts()
            return process.run(job)

    try:
        result = run(dataclasses.replace(engine, config=str(config), random_lengths=True), "native", _job(column, True))
    except EngineError as error:
        if reasons := refusal(str(error)):
            return Cell(REFUSED, reasons)
        stock = json.dumps({**column.stock(weights), "num_speculative_tokens": _K})
        try:
            run(dataclasses.replace(engine, config=stock), "stock", _job(column, False))
        except EngineError as own:
            return Cell(NOT_RUNNABLE, [_last_line(str(own))])
        return Cell(WRONG, [_last_line(str(error))])
    if column.runner not in plain:
        plain[column.runner] = run(engine, "plain", _job(column, False))
    faults = greedy_faults(result, plain[column.runner])
    accepted, rejected = result.accepted, result.rejected
    verdict = WRONG if faults else EXACT if accepted and rejected else UNTESTED
    return Cell(verdict, faults, accepted, rejected, round(time.perf_counter() - start, 1))


def _job(column: Column, has_options: bool) -> Job:
    """Greedy requests; a third is not drafted for, a third by at most two tokens."""
    num_requests, num_tokens = _SIZES[column.runner]
    requests = []
    for i, prompt in enumerate(repeating_prompts(num_requests)):
        params: dict[str, Any] = {"temperature": 0.0, "max_tokens": num_tokens, "ignore_eos": True}
        if has_options:
            params["extra_args"] = ({"spec": "off"}, {"spec_tokens": 2}, {})[i % 3]
        else:
            params["logprobs"] = 2
        requests.append(CertifyRequest(prompt, params))
    return Job(requests)


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1].strip(" |")
