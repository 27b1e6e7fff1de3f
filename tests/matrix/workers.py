"""Runs the rows of the matrix, as many at once as there are cores."""

import dataclasses
import multiprocessing
import os
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from tests.engine.arms import ENVIRONMENT
from tests.engine.forks import ForkServer
from tests.matrix.running import run_row

# A worker's engine takes about 2 GB.
_MOST_WORKERS = 4


def run(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Runs rows, as many at once as there are cores, each pinned to one.

    Returns:
        Per row its "date" and "seconds", and its "cells" by column.
    """
    cores = sorted(os.sched_getaffinity(0))[:_MOST_WORKERS]
    context = multiprocessing.get_context("spawn")
    todo: SimpleQueue[str] = context.SimpleQueue()
    done: SimpleQueue[tuple[str, str, dict[str, Any]]] = context.SimpleQueue()
    for name in [*names, *("" for _ in cores)]:
        todo.put(name)
    with tempfile.TemporaryDirectory(prefix="tiny-models-") as folder:
        workers = []
        for core in cores:
            os.environ.update(OMP_NUM_THREADS="1", VLLM_CPU_OMP_THREADS_BIND=str(core))
            workers.append(context.Process(target=_work, args=(core, todo, done, folder)))
            workers[-1].start()
        try:
            return _collect(names, done, workers)
        finally:
            for worker in workers:
                worker.terminate()
                worker.join()


def _work(core: int, todo: "SimpleQueue[str]", done: "SimpleQueue[Any]", folder: str) -> None:
    os.sched_setaffinity(0, {core})
    own = Path(folder) / f"core{core}"
    own.mkdir()
    forks = ForkServer(own, {**os.environ, **ENVIRONMENT})
    while name := todo.get():
        start, cells = time.perf_counter(), {}
        for column, cell in run_row(name, Path(folder), forks.python):
            cells[column] = dataclasses.asdict(cell)
            done.put((name, column, cells[column]))
        date = datetime.now(UTC).date().isoformat()
        done.put((name, "", {"date": date, "seconds": round(time.perf_counter() - start, 1), "cells": cells}))
    forks.stop()


def _collect(names: Sequence[str], done: "SimpleQueue[Any]", workers: Sequence[Any]) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    while len(rows) < len(names):
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
