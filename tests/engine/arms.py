"""The engines of the tests, started when first needed."""

import dataclasses
import hashlib
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.engine.forks import ForkServer
from tests.engine.v2 import RUNNER, runner_environment
from tests.fixed_length import distant, fixed_length
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.jobs import EngineProcess, Job, JobResult
from vllm_spec_tools.engines.serving import runs_on_cpu

REPOSITORY = Path(__file__).parent.parent.parent
LOOKUP = fixed_length("ngram")
SUFFIX = fixed_length("suffix")
PREDICTION = str(REPOSITORY / "tests/engine/configs/prediction.yaml")
GRAMMAR = str(REPOSITORY / "tests/engine/configs/grammar.yaml")
DRAFT_MODEL = fixed_length("draft_model")
DISTANT = distant()
EAGLE3 = fixed_length("eagle3")
EAGLE3_AFTER_PREDICTION = str(REPOSITORY / "tests/engine/configs/eagle3_after_prediction.yaml")
EAGLE3_CASCADE = str(REPOSITORY / "tests/engine/configs/eagle3_cascade.yaml")
MEDUSA = fixed_length("medusa")
MEDUSA_TREE_DRAWN = str(REPOSITORY / "tests/engine/configs/medusa_tree_drawn.yaml")
DRAFT_MODEL_OPTIMAL = str(REPOSITORY / "tests/engine/configs/draft_model_optimal.yaml")
CASCADE = str(REPOSITORY / "tests/engine/configs/cascade.yaml")
RANDOM_LENGTHS = {CASCADE, EAGLE3_CASCADE}
# The policy learns that all steps take equally long; else it may find that drafts of many requests do not pay.
EQUAL_STEPS = {DRAFT_MODEL_OPTIMAL}
_MOST_ALIVE = 4
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # The hooks are of the tests.
    "PYTHONPATH": os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH")))),
}


@dataclasses.dataclass(frozen=True)
class Engine:
    """Which engine an arm has."""

    config: str = ""  # Path of a plugin.yaml, or stock JSON; empty is no speculation.
    max_num_seqs: int = 256  # Most requests in a step.
    max_num_batched_tokens: int = 2048  # Most tokens in a step; few make prompts be computed in chunks.
    num_blocks: int = 1536  # KV cache blocks of 32 tokens; few make requests be preempted.
    max_model_len: int = 1024  # Longest text.
    check: bool = False  # Whether it checks its KV blocks in each step, see `integrity.py`; with a plugin.yaml only.
    compiled: bool = False  # Whether its models are compiled, which takes half a minute.
    generic_pass: bool = False  # Whether a draft model runs in the way that suits any model and device.
    # Whether draft lengths and the order of proposers are random (see `lengths.py`), as always with some
    # configs; the note "lengths" has those of trees.
    random_lengths: bool = False
    model: str = ""  # Folder of the target; empty is the bundled one.
    runner: str = "v1"  # vLLM's model runner; of "v2" and "default" see `tests/engine/v2`.
    # Further keyword arguments of `vllm.LLM`, which win over these, as pairs; so are dicts among them.
    options: tuple[tuple[str, Any], ...] = ()

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `vllm.LLM`; "speculative_config" is still a path or JSON, some are for the arm."""
        arguments = {
            "model": self.model or str(model_path("target")),
            "dtype": "float32",
            "enforce_eager": not self.compiled,
            "gpu_memory_utilization": 0.5,
            "block_size": 32,
            "num_gpu_blocks_override": self.num_blocks,
            "max_model_len": self.max_model_len,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "enable_prefix_caching": True,
            "disable_log_stats": False,
            # Else a model may write blanks for as long as it may write.
            "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
            "seed": 0,
        }
        if self.config:
            arguments["speculative_config"] = self.config
        hooks = {"hooks": "tests.engine.hooks", "check": self.check, "generic_pass": self.generic_pass}
        hooks["random_lengths"] = self.random_lengths or self.config in RANDOM_LENGTHS
        hooks["equal_steps"] = self.config in EQUAL_STEPS
        return arguments | hooks | _as_dict(self.options)


def _as_dict(pairs: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: _as_dict(value) if isinstance(value, tuple) else value for name, value in pairs}


# Prompts are computed in chunks, and there is too little KV cache for all that run together.
TIGHT: dict[str, Any] = {"max_num_seqs": 24, "max_num_batched_tokens": 128, "num_blocks": 72}
# Two tensor-parallel ranks, each a process.
TWO_RANKS = (("tensor_parallel_size", 2), ("distributed_executor_backend", "mp"))


class Arms:
    """The session's arms: started when first needed, a few kept alive, results of jobs remembered."""

    def __init__(self, folder: Path, results: Path) -> None:
        """Starts none yet.

        Args:
            folder: for the files of the engines; of this process alone.
            results: where results are kept; may be shared with other processes.
        """
        self._folder, self._num_started = folder, 0
        self._alive: dict[Engine, EngineProcess] = {}
        self._forks: dict[str, ForkServer] = {}
        self._results = results
        results.mkdir(exist_ok=True)

    def run(self, engine: Engine, job: Job) -> JobResult:
        """The result of `job` on `engine`, from an earlier run of the session if there was one."""
        path = self._results / hashlib.sha256(repr((engine, job)).encode()).hexdigest()
        if not path.exists():
            partial = self._folder / "result"
            partial.write_bytes(pickle.dumps(self._arm(engine).run(job)))
            partial.rename(path)
        result: JobResult = pickle.loads(path.read_bytes())
        return result

    def python(self, environment: Mapping[str, str]) -> Sequence[str]:
        """The command that stands for the interpreter's, see `ForkServer`."""
        # A process that has looked for a GPU must not be forked.
        if not runs_on_cpu():
            return (sys.executable,)
        # Processes that may use V2 have Triton from their start.
        runner = "v1" if environment.get(RUNNER) == "0" else "v2"
        if runner not in self._forks:
            folder = self._folder / f"forks{runner}"
            folder.mkdir()
            self._forks[runner] = ForkServer(folder, environment)
        return self._forks[runner].python

    def log(self, engine: Engine) -> str:
        """Reads the output that the engine printed when it last ran."""
        return self._alive[engine].log

    def stop(self) -> None:
        """Ends all."""
        while self._alive:
            self._alive.popitem()[1].stop()
        for forks in self._forks.values():
            forks.stop()

    def _arm(self, engine: Engine) -> EngineProcess:
        arm = self._alive.pop(engine, None)
        if arm is not None and not arm.alive:
            arm.stop()
            arm = None
        if arm is None:
            if len(self._alive) == _MOST_ALIVE:
                self._alive.pop(next(iter(self._alive))).stop()
            self._num_started += 1
            environment = runner_environment(engine.runner, {**os.environ, **ENVIRONMENT})
            if {("tensor_parallel_size", 2), ("pipeline_parallel_size", 2)} & set(engine.options):
                environment |= {"VLLM_CPU_OMP_THREADS_BIND": "0|1", "OMP_NUM_THREADS": "1"}
                python: Sequence[str] = (sys.executable,)
            else:
                python = self.python(environment)
            folder = self._folder / f"arm{self._num_started}"
            arm = EngineProcess(engine.arguments(), folder, environment, python=python)
        # The last in order is the last used.
        self._alive[engine] = arm
        return arm
