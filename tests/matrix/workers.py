"""Runs the rows of the matrix, as many at once as there are cores."""

import dataclasses
import multiprocessing
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from tests.engine.arms import Arms
from tests.matrix.running import run_row

# A worker's engine takes about 2 GB.
_MOST_WORKERS = 4


def run(columns: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Runs rows, as many at once as there are cores, each pinned to one.

    Args:
        columns: by row, those to run.

    Returns:
        Per row its "date" and "seconds", and its "cells" by column.
    """
    cores = sorted(os.sched_getaffinity(0))[:_MOST_WORKERS]
    context = multiprocessing.get_context("spawn")
    todo: SimpleQueue[tuple[str, Sequence[str]] | None] = context.SimpleQueue()
    done: SimpleQueue[tuple[str, str, dict[str, Any]]] = context.SimpleQueue()
    for row in [*columns.items(), *(None for _ in cores)]:
        todo.put(row)
    with tempfile.TemporaryDirectory(prefix="tiny-models-") as folder:
        workers = []
        for core in cores:
            os.environ.update(OMP_NUM_THREADS="1", VLLM_CPU_OMP_THREADS_BIND=str(core))
            workers.append(context.Process(target=_work, args=(core, todo, done, folder)))
            workers[-1].start()
        try:
            return _collect(len(columns), done, workers)
        finally:
            for worker in workers:
                worker.terminate()
                worker.join()


def _work(core: int, todo: "SimpleQueue[Any]", done: "SimpleQueue[Any]", folder: str) -> None:
    os.sched_setaffinity(0, {core})
    own = Path(folder) / f"core{core}"
    own.mkdir()
    arms = Arms(own, own / "results")
    while row := todo.get():
        name, columns = row
        start, cells = time.perf_counter(), {}
        for column, cell in run_row(name, columns, own, arms.python):
            cells[column] = dataclasses.asdict(cell)
            done.put((name, column, cells[column]))
        date = datetime.now(UTC).date().isoformat()
        done.put((name, "", {"date": date, "seconds": round(time.perf_counter() - start, 1), "cells": cells}))
    arms.stop()


def _collect(num_rows: int, done: "SimpleQueue[Any]", workers: Sequence[Any]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    while len(rows) < num_rows:
        while done.empty():
            if not any(worker.is_alive() for worker in workers):
                raise RuntimeError(f"the workers died; rows done: {', '.join(rows) or 'none'}")
            time.sleep(0.1)
        name, column, cell = done.get()
        if column:
            drafts = f" ({cell['accepted']} drafts accepted, {cell['rejected']} rejected)" if cell["accepted"] else ""
            print(f"{name:20} {column:12} {cell['verdict']}{drafts} {'; '.join(cell['reasons'])}", flush=True)
        else:
            rows[name] = cell
    return rows
