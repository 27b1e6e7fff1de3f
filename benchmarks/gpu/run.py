"""Compares arms on a GPU, on padded models; each run is written as it ends, so that an interrupted comparison counts.

    python -m benchmarks.gpu.padding /dev/shm/models --size 8b
    python -m benchmarks.gpu.run /dev/shm/models results.jsonl
    python -m benchmarks.gpu.run --table results.jsonl

Engines start side by side, as many as fit into the device's memory, and are measured in turn. The first arm is no
speculation; greedy outputs are compared with its. On a CPU only arms of the V1 runner run: a rehearsal.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.gpu.engines import all_started
from vllm_spec_plugin.compat.engine_args import device_memory
from vllm_spec_tools.bench.arms import base_of, plan_arms
from vllm_spec_tools.bench.curves import whole_steps
from vllm_spec_tools.bench.engine_args import arm_environment, engine_arguments
from vllm_spec_tools.bench.load.sweep import SweepPlan, figures
from vllm_spec_tools.bench.load.workloads import BEGINNINGS, LoadSizes
from vllm_spec_tools.bench.records import EngineStep, LoadAnswer, LoadJob, LoadRequest, Phase
from vllm_spec_tools.engines.engine_child import EngineError
from vllm_spec_tools.engines.jobs import EngineProcess
from vllm_spec_tools.engines.memory import beside_others
from vllm_spec_tools.engines.serving import runs_on_cpu
from vllm_spec_tools.report.provenance import provenance

K = 4
_TABLE = [[1, 8, K], [9, 32, 2], [33, 1024, 0]]
_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
# What an engine takes besides weights and KV cache: context, activations, graphs.
_ENGINE_BYTES = 5 << 30
# Output tokens of each request whose steps are timed.
_CURVE_TOKENS = 32


@dataclass(frozen=True)
class GpuArm:
    """An arm of the comparison.

    Attributes:
        word: as `vllm-spec bench --arm` takes it; "{draft}" and "{eagle3}" are the padded models.
        environment: of its process.
        spec_tokens: most draft tokens of each request; 0 is off, None the engine's own.
    """

    word: str
    environment: dict[str, str] = field(default_factory=dict)
    spec_tokens: int | None = None


def _stock(method: str, kind: str = "stock", **keys: Any) -> str:
    weights = "draft" if method == "draft_model" else method
    given = {"method": method, "model": f"{{{weights}}}", "num_speculative_tokens": K, **keys}
    return f"{kind}:{json.dumps(given)}"


# In the order of their worth, if time ends early.
ARMS = {
    "none, V2": GpuArm("none"),
    "draft_model, optimal, V2": GpuArm(_stock("draft_model", "vllm", num_speculative_tokens=8)),
    "vLLM's draft_model by batch size, V2": GpuArm(_stock("draft_model", num_speculative_tokens_per_batch_size=_TABLE)),
    "eagle3, optimal, V2": GpuArm(_stock("eagle3", "vllm")),
    "vLLM's eagle3 by batch size, V2": GpuArm(_stock("eagle3", num_speculative_tokens_per_batch_size=_TABLE)),
    "draft_model off, V2": GpuArm(_stock("draft_model", "vllm", num_speculative_tokens=8), spec_tokens=0),
    "vLLM's draft_model, adaptive, V2": GpuArm(_stock("draft_model", enable_adaptive_verification=True)),
    "vLLM's eagle3, adaptive, V2": GpuArm(_stock("eagle3", enable_adaptive_verification=True)),
    "none, V1": GpuArm("none", _V1),
    "own draft_model, optimal, V1": GpuArm("optimal", _V1),
    "vLLM's draft_model by batch size, V1": GpuArm(
        _stock("draft_model", num_speculative_tokens_per_batch_size=_TABLE), _V1
    ),
    "own draft_model off, V1": GpuArm("optimal", _V1, spec_tokens=0),
}


def _arguments(given: GpuArm, models: Path, folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    word = given.word.replace("{draft}", str(models / "draft")).replace("{eagle3}", str(models / "eagle3"))
    folder.mkdir()
    [*_, arm] = plan_arms([word], base_of(None, str(models / "draft")), folder).values()
    return engine_arguments(arm.plan, str(models / "target"), 0, enforce_eager=False, options=options)


def _begun(names: Sequence[str], models: Path, folder: Path, options: dict[str, Any]) -> dict[str, EngineProcess]:
    """Begins to start the engines of arms."""
    environment = arm_environment(str(models / "target"), options)
    arms = {}
    for name in names:
        own = folder / str(len(list(folder.iterdir())))
        arguments = _arguments(ARMS[name], models, own, options)
        own_environment = environment | ARMS[name].environment
        arms[name] = EngineProcess(arguments, own / "log", own_environment, name=f"arm {name}")
    return arms


def _step_seconds(answer: LoadAnswer) -> float | None:
    steps = [b - a for phase in answer.phases for a, b in pairwise(phase.progress.seconds)]
    return statistics.median(steps) if steps else None


def _equal(answer: LoadAnswer, reference: LoadAnswer, job: LoadJob) -> dict[str, int]:
    """Counts equal and different greedy outputs, compared up to the length of the shorter one."""
    counts = {"equal": 0, "different": 0}
    for phase, own, theirs in zip(job.phases, answer.phases, reference.phases, strict=True):
        pairs = zip(phase.requests, own.progress.outputs, theirs.progress.outputs, strict=False)
        for request, output, expected in pairs:
            if request.temperature == 0:
                length = min(len(output.token_ids), len(expected.token_ids))
                same = output.token_ids[:length] == expected.token_ids[:length]
                counts["equal" if same else "different"] += 1
    return counts


def run(
    models: Path, out: Path, names: Sequence[str], plan: SweepPlan, kv_bytes: int, minutes: float, dtype: str
) -> None:
    """Runs all cells of arms, and appends a line of JSON for each."""
    begin = time.monotonic()
    weights = sum(path.stat().st_size for path in models.glob("*/*.safetensors"))
    at_once = 2 if runs_on_cpu() else max(1, int(0.92 * device_memory()[1] / (weights + kv_bytes + _ENGINE_BYTES)))
    options: dict[str, Any] = {"dtype": dtype, "max_num_seqs": 128, "max_model_len": 1024}
    if not runs_on_cpu():
        options |= beside_others(kv_bytes)
    references: dict[tuple[str, int], LoadAnswer] = {}

    def write(**line: Any) -> None:
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print({key: value for key, value in line.items() if key != "provenance"}, flush=True)

    origin = provenance([], 0, [], {"target": models.name}, program="python -m benchmarks.gpu.run")
    write(provenance=origin, weight_bytes=weights, at_once=at_once)
    with tempfile.TemporaryDirectory() as temporary:
        for first in range(0, len(names), at_once):
            with all_started(_begun(names[first : first + at_once], models, Path(temporary), options)) as engines:
                for name, arm in engines.items():
                    if isinstance(arm, EngineError):
                        write(arm=name, error=str(arm)[-2000:])
                        continue
                    write(arm=name, facts=arm.facts(), started_s=round(time.monotonic() - begin, 1))
                    for cell in plan.cells:
                        if time.monotonic() - begin > 60 * minutes:
                            write(arm=name, error="the time was over")
                            break
                        _run_cell(arm, name, cell, plan, references, write)
                    else:
                        # Last: recording its steps makes an engine slower.
                        write(arm=name, steps=_step_times(arm, sorted({level for _, level in plan.cells})))


def _step_times(arm: EngineProcess, levels: Sequence[int]) -> list[dict[str, float]]:
    """Medians by requests and by tokens that the target computed, without prompts."""
    times: dict[tuple[int, int], list[EngineStep]] = {}
    for level in levels:
        texts = (BEGINNINGS[number % len(BEGINNINGS)] for number in range(level))
        requests = tuple(LoadRequest("easy", text, 0.0, _CURVE_TOKENS) for text in texts)
        phase = Phase(requests, level * _CURVE_TOKENS, is_pass=True)
        for step in whole_steps(arm.load(LoadJob(level, (phase,), 0, record_steps=True)).steps, level):
            times.setdefault((level, step.num_tokens), []).append(step)
    return [
        {
            "requests": requests,
            "tokens": tokens,
            "steps": len(steps),
            "milliseconds": round(1e3 * statistics.median(step.seconds for step in steps), 3),
            "drafting_milliseconds": round(1e3 * statistics.median(step.drafting_seconds for step in steps), 3),
        }
        for (requests, tokens), steps in sorted(times.items())
    ]


def _run_cell(
    arm: EngineProcess,
    name: str,
    cell: tuple[str, int],
    plan: SweepPlan,
    references: dict[tuple[str, int], LoadAnswer],
    write: Any,
) -> None:
    for number in range(-1, plan.rounds):
        job = plan.job(cell, max(number, 0), is_warm_up=number < 0)
        job = LoadJob(job.streams, job.phases, job.seed, ARMS[name].spec_tokens)
        try:
            answer = arm.load(job)
        except EngineError as error:
            write(arm=name, cell=cell, error=str(error)[-2000:])
            return
        if number < 0:
            continue
        reference = references.setdefault(cell, answer) if number == 0 else None
        found = figures(answer) | {"step_seconds": _step_seconds(answer), "cpu_seconds": answer.cpu_seconds}
        equal = _equal(answer, reference, job) if reference is not None else {}
        write(arm=name, cell=cell, round=number, figures=found, outputs=equal)


def table(path: Path) -> str:
    """Returns tokens/s over the first arm's, medians of rounds, as Markdown: a row per arm, a column per cell."""
    speeds: dict[str, dict[str, list[float]]] = {}
    for line in map(json.loads, path.read_text().splitlines()):
        if "figures" in line:
            cell = f"{line['cell'][0]}, {line['cell'][1]}"
            speeds.setdefault(line["arm"], {}).setdefault(cell, []).append(line["figures"]["tokens_per_second"])
    first = next(iter(speeds.values()), {})
    rows = [["tokens/s over the first arm", *first], ["---"] * (1 + len(first))]
    for name, own in speeds.items():
        ratios = [f"{statistics.median(own[c]) / statistics.median(first[c]):.2f}" if c in own else "-" for c in first]
        rows.append([name, *ratios])
    rows.append(["(first arm, tokens/s)", *(f"{statistics.median(values):.0f}" for values in first.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def main(
    models: Annotated[Path, typer.Argument(help="Folder of padded models; with --table, the results.")],
    out: Annotated[Path | None, typer.Argument(help="File to append results to.")] = None,
    show: Annotated[bool, typer.Option("--table", help="Print the table of results, and run nothing.")] = False,
    arm: Annotated[list[str] | None, typer.Option(help="Arms whose names have this text; repeatable.")] = None,
    levels: Annotated[str, typer.Option(help="Numbers of streams.")] = "1,8,32,128",
    workload: Annotated[list[str] | None, typer.Option(help="Workloads. [default: easy, mixed]")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 1,
    stream_tokens: Annotated[int, typer.Option(help="Minimum output tokens per stream of a run.")] = 128,
    kv_gib: Annotated[float, typer.Option(help="KV cache of each engine.")] = 4.0,
    minutes: Annotated[float, typer.Option(help="No run starts later.")] = 8.0,
    dtype: Annotated[str, typer.Option()] = "bfloat16",
) -> None:
    """Compares arms on padded models."""
    if show or out is None:
        typer.echo(table(models), nl=False)
        return
    names = [name for name in ARMS if not arm or any(text in name for text in arm)]
    cells = tuple((kind, int(level)) for level in levels.split(",") for kind in workload or ("easy", "mixed"))
    sizes = LoadSizes(request_tokens=stream_tokens, stream_tokens=stream_tokens, min_total_tokens=4 * stream_tokens)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    run(models, out, names, SweepPlan(cells, BEGINNINGS, sizes, rounds, 0), int(kv_gib * 2**30), minutes, dtype)
    typer.echo(table(out), nl=False)


if __name__ == "__main__":
    typer.run(main)
