"""Runs rows of the matrix."""

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.engine.arms import ENVIRONMENT, Engine
from tests.engine.jobs import Job, JobResult
from tests.engine.tiny import tiny_adapter
from tests.matrix import native
from tests.matrix.cells import (
    REFUSED,
    ROWS,
    UNTESTED,
    WRONG,
    Cell,
    Row,
    adapter_faults,
    jobs,
    judge,
    plain_job,
    plugin_yaml,
    refusal,
)
from vllm_spec_tools.engines.engine_child import EngineError
from vllm_spec_tools.engines.jobs import EngineProcess

_TIMEOUT_SECONDS = 300.0
# Further runs of a cell in which no draft was accepted, or none rejected.
_ATTEMPTS = 3


def columns_of(name: str) -> list[str]:
    """The columns that a row is run with: keys of `cells.COLUMNS` and of `native.COLUMNS`."""
    return [*ROWS[name].columns, *native.columns_of(ROWS[name])]


def run_row(
    name: str, columns: Sequence[str], folder: Path, python: Callable[[Mapping[str, str]], Sequence[str]]
) -> Iterator[tuple[str, Cell]]:
    """Runs a row of the matrix.

    Args:
        name: a key of `ROWS`.
        columns: of `columns_of`, those to run.
        folder: where models are kept.
        python: returns the interpreter's command for an environment, see `ForkServer`.

    Yields:
        One of the columns, and its cell.
    """
    row = ROWS[name]
    models = row.models(folder)
    options = {"skip_tokenizer_init": True, **row.options}
    # Prompts are computed in chunks.
    engine = Engine(
        model=str(models["target"]),
        max_num_seqs=16,
        max_num_batched_tokens=256,
        num_blocks=256,
        options=tuple(options.items()),
    )
    with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
        own = [column for column in columns if column not in native.COLUMNS]
        yield from _run_own(row, own, engine, models, Path(scratch), python({**os.environ, **ENVIRONMENT}))
        plain: dict[str, JobResult] = {}
        for column in columns:
            if column in native.COLUMNS:
                yield column, native.run_column(column, engine, models, Path(scratch), python, plain)


def _run_own(
    row: Row, columns: Sequence[str], engine: Engine, models: Mapping[str, Path], scratch: Path, python: Sequence[str]
) -> Iterator[tuple[str, Cell]]:
    adapter = str(tiny_adapter(models["target"])) if row.lora else ""
    plain: JobResult | None = None
    for column in columns:
        config = scratch / f"{column}.yaml"
        config.write_text(plugin_yaml(column, models))
        start = time.perf_counter()
        try:
            served = dataclasses.replace(engine, config=str(config), check=True)
            results = _run(served, jobs(adapter), scratch / column, python)
            seconds = time.perf_counter() - start
            if plain is None:
                plain_jobs = {"": plain_job(adapter)} | ({"base": plain_job()} if adapter else {})
                plain, *base = _run(engine, plain_jobs, scratch / "plain", python).values()
                faults = [fault for other in base for fault in adapter_faults(plain, other)]
                assert not faults, faults
        except EngineError as error:
            reasons = refusal(str(error))
            yield column, Cell(REFUSED, reasons) if reasons else Cell(WRONG, [str(error)])
            continue
        verdict, reasons = judge(column, results, plain)
        # Whether `optimal` drafts at all depends on what steps took.
        for attempt in range(_ATTEMPTS):
            if verdict != UNTESTED:
                break
            results = _run(served, jobs(adapter), scratch / f"{column}-{attempt}", python)
            verdict, reasons = judge(column, results, plain)
        accepted, rejected = (sum(getattr(r, each) for r in results.values()) for each in ("accepted", "rejected"))
        yield column, Cell(verdict, reasons, accepted, rejected, round(seconds, 1))


def _run(engine: Engine, jobs: Mapping[str, Job], folder: Path, python: Sequence[str]) -> dict[str, JobResult]:
    """The results of jobs on a new engine, by name.

    Raises:
        EngineError: the engine was refused, or failed.
    """
    environment = {**os.environ, **ENVIRONMENT}
    with EngineProcess(engine.arguments(), folder, environment, _TIMEOUT_SECONDS, python) as process:
        process.facts()
        return {name: process.run(job) for name, job in jobs.items()}
