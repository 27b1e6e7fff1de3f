"""Makes tests with vLLM quick.

Engines side by side have a core each: two on two cores without this slow each other tenfold. Models' classes are
inspected in the process that asks, not in a new one, which takes ten seconds per architecture.
"""

import importlib
import os
import sys
from pathlib import Path


def take_one(worker: str) -> None:
    """Binds a pytest-xdist worker ("gw0", "gw1", ...), and what it starts from now on, to one core and one thread.

    What vLLM compiles is kept per worker: two engines that compile the same model would write the same files.
    """
    cores = sorted(os.sched_getaffinity(0))
    core = cores[int(worker.removeprefix("gw")) % len(cores)]
    os.sched_setaffinity(0, {core})
    cache = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
    os.environ.update(
        OMP_NUM_THREADS="1", VLLM_CPU_OMP_THREADS_BIND=str(core), VLLM_CACHE_ROOT=str(cache / "tests" / worker)
    )
    # Where torch is imported already it has settled its threads: two on one core wait for each other.
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def inspect_models_here() -> None:
    """Makes vLLM, where it is imported, inspect models' classes in this process."""
    if sys.modules.get("vllm") is not None:
        registry = importlib.import_module("vllm.model_executor.models.registry")
        vars(registry)["_run_in_subprocess"] = lambda inspect: inspect()
