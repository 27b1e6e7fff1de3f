"""Runs the rows of the matrix, as many at once as there are cores."""

import dataclasses
import multiprocessing
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.engine.arms import Arms
from tests.matrix.running import run_row

# A worker's engine takes about 2 GB.
_MOST_WORKERS = 4
# This process's engines, and the folder of its models.
_own: dict[str, Any] = {}


def run(columns: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Runs rows, as many at once as there are cores, each pinned to one.

    Args:
        columns: by row, those to run.

    Returns:
        Per row its "date" and "seconds", and its "cells" by column.
    """
    cores, context = sorted(os.sched_getaffinity(0))[:_MOST_WORKERS], multiprocessing.get_context("spawn")
    free = context.SimpleQueue()
    for core in cores:
        free.put(core)
    os.environ["OMP_NUM_THREADS"] = "1"
    with (
        tempfile.TemporaryDirectory(prefix="tiny-models-") as folder,
        ProcessPoolExecutor(len(cores), context, _take_core, (free, folder)) as pool,
    ):
        rows = {name: pool.submit(_run, name, each) for name, each in columns.items()}
        return {name: row.result() for name, row in rows.items()}


def _take_core(free: Any, folder: str) -> None:
    core = free.get()
    os.sched_setaffinity(0, {core})
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = str(core)
    own = Path(folder) / f"core{core}"
    own.mkdir()
    # Its engines end with this process.
    _own.update(arms=Arms(own, own / "results"), folder=own)


def _run(name: str, columns: Sequence[str]) -> dict[str, Any]:
    start, cells = time.perf_counter(), {}
    for column, cell in run_row(name, columns, _own["folder"], _own["arms"].python):
        drafts = f" ({cell.accepted} drafts accepted, {cell.rejected} rejected)" if cell.accepted else ""
        print(f"{name:20} {column:12} {cell.verdict}{drafts} {'; '.join(cell.reasons)}", flush=True)
        cells[column] = dataclasses.asdict(cell)
    date = datetime.now(UTC).date().isoformat()
    return {"date": date, "seconds": round(time.perf_counter() - start, 1), "cells": cells}
