"""Runs rows of the matrix."""

import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.engine.arms import ENVIRONMENT, Engine
from tests.engine.jobs import Job, Result
from tests.engine.tiny import tiny_adapter, tiny_eagle3, tiny_model
from tests.matrix.cells import (
    REFUSED,
    ROWS,
    UNTESTED,
    WRONG,
    adapter_faults,
    jobs,
    judge,
    plain_job,
    plugin_yaml,
    refusal,
)
from vllm_spec_plugin.tools.certify.engines import EngineProcess
from vllm_spec_plugin.tools.engine_child import EngineError

_NOISE = 0.05
_TIMEOUT_SECONDS = 300.0
# Further runs of a cell in which no draft was accepted, or none rejected.
_ATTEMPTS = 3


@dataclasses.dataclass(frozen=True)
class Cell:
    """What came of a cell."""

    verdict: str  # Of `cells`.
    reasons: Sequence[str] = ()  # Why it is refused, or what is wrong; empty if it is exact.
    accepted: int = 0  # Drafts that were verified and accepted.
    rejected: int = 0  # Drafts that were verified and rejected.
    seconds: float = 0.0  # How long its engine took, start included.


def run_row(name: str, folder: Path, python: Sequence[str]) -> Iterator[tuple[str, Cell]]:
    """Runs a row of the matrix.

    Args:
        name: a key of `ROWS`.
        folder: where models are kept.
        python: the interpreter's command, see `ForkServer`.

    Yields:
        One of the row's `columns`, and its cell.
    """
    row = ROWS[name]
    model = tiny_model(row.architecture, folder)
    draft = tiny_model(row.architecture, folder, _NOISE)
    head = tiny_eagle3(folder) if "eagle3" in row.columns else draft
    adapter = str(tiny_adapter(model)) if row.lora else ""
    options = {"skip_tokenizer_init": True, **row.options}
    # Prompts are computed in chunks.
    engine = Engine(
        model=str(model), max_num_seqs=16, max_num_batched_tokens=256, num_blocks=256, options=tuple(options.items())
    )
    plain: Result | None = None
    with tempfile.TemporaryDirectory(prefix="matrix-") as scratch:
        for column in row.columns:
            config = Path(scratch) / f"{column}.yaml"
            config.write_text(plugin_yaml(column, head if column == "eagle3" else draft))
            start = time.perf_counter()
            try:
                served = dataclasses.replace(engine, config=str(config), check=True)
                results = _run(served, jobs(adapter), Path(scratch) / column, python)
                seconds = time.perf_counter() - start
                if plain is None:
                    plain_jobs = {"": plain_job(adapter)} | ({"base": plain_job()} if adapter else {})
                    plain, *base = _run(engine, plain_jobs, Path(scratch) / "plain", python).values()
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
                results = _run(served, jobs(adapter), Path(scratch) / f"{column}-{attempt}", python)
                verdict, reasons = judge(column, results, plain)
            accepted, rejected = (sum(getattr(r, each) for r in results.values()) for each in ("accepted", "rejected"))
            yield column, Cell(verdict, reasons, accepted, rejected, round(seconds, 1))


def _run(engine: Engine, jobs: Mapping[str, Job], folder: Path, python: Sequence[str]) -> dict[str, Result]:
    """The results of jobs on a new engine, by name.

    Raises:
        EngineError: the engine was refused, or failed.
    """
    environment = {**os.environ, **ENVIRONMENT}
    with EngineProcess(engine.arguments(), folder, environment, _TIMEOUT_SECONDS, python) as process:
        process.facts()
        return {name: process.run(job) for name, job in jobs.items()}
