"""Starting arms, giving them jobs, and stopping them."""

import dataclasses
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.engine.jobs import Job, Result
from tests.fixed_length import fixed_length
from vllm_spec_plugin.demo import model_path

REPOSITORY = Path(__file__).parent.parent.parent
LOOKUP = fixed_length("ngram")
FREQUENCY = fixed_length("ngram_frequency")
DRAFT_MODEL = fixed_length("draft_model")
CONFIDENT = str(REPOSITORY / "tests/engine/configs/draft_model_confident.yaml")
DISTANT = str(REPOSITORY / "tests/engine/configs/draft_model_distant.yaml")
MEDUSA = fixed_length("medusa")
MEDUSA_TREE = fixed_length("medusa_tree", 5)
MEDUSA_TREE_DRAWN = str(REPOSITORY / "tests/engine/configs/medusa_tree_drawn.yaml")
MULTI_DRAFT = fixed_length("multi_draft", 14)
MULTI_DRAFT_DISTANT = str(REPOSITORY / "tests/engine/configs/multi_draft_distant.yaml")
DRAFT_MODEL_OPTIMAL = str(REPOSITORY / "tests/engine/configs/draft_model_optimal.yaml")
MEDUSA_TREE_OPTIMAL = str(REPOSITORY / "tests/engine/configs/medusa_tree_optimal.yaml")
CASCADE = str(REPOSITORY / "tests/engine/configs/cascade.yaml")
_MOST_ALIVE = 4
_PATIENCE = 3600.0


@dataclasses.dataclass(frozen=True)
class Engine:
    """Which engine an arm has.

    Attributes:
        config: path of a plugin.yaml, or stock JSON; empty is no speculation.
        max_num_seqs: most requests in a step.
        max_num_batched_tokens: most tokens in a step; few make prompts be computed in chunks.
        num_blocks: KV cache blocks of 32 tokens; few make requests be preempted.
        max_model_len: longest text.
        check: whether it checks its KV blocks in each step, see `integrity.py`; with a plugin.yaml only.
        compiled: whether its models are compiled, which takes half a minute.
        generic_pass: whether a draft model runs in the way that suits any model and device.
    """

    config: str = ""
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    num_blocks: int = 1536
    max_model_len: int = 1024
    check: bool = False
    compiled: bool = False
    generic_pass: bool = False

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `vllm.LLM`; "speculative_config" is still a path or JSON, some are for the arm."""
        arguments = {
            "model": str(model_path("target")),
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
        arguments["check"], arguments["generic_pass"] = self.check, self.generic_pass
        return arguments


# Prompts are computed in chunks, and there is too little KV cache for all that run together.
TIGHT: dict[str, Any] = {"max_num_seqs": 24, "max_num_batched_tokens": 128, "num_blocks": 72}


class Arm:
    """A running engine."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "engine.pickle").write_bytes(pickle.dumps(engine.arguments()))
        self._folder, self._num_jobs = folder, 0
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.engine.arm", str(folder / "engine.pickle")],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def run(self, job: Job) -> Result:
        """Runs `job`.

        Raises:
            RuntimeError: the engine died; the message has the end of its log.
        """
        self._num_jobs += 1
        job_path, result_path = (self._folder / f"{kind}{self._num_jobs}.pickle" for kind in ("job", "result"))
        job_path.write_bytes(pickle.dumps(job))
        assert self._process.stdin is not None
        try:
            print(job_path, result_path, sep="\t", file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._death() from None
        deadline = time.monotonic() + _PATIENCE
        while not result_path.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise self._death()
            time.sleep(0.05)
        result: Result = pickle.loads(result_path.read_bytes())
        return result

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Ends the process."""
        # An engine takes seconds to end by itself, and has nothing to save.
        self._process.kill()
        self._process.wait()

    def _death(self) -> RuntimeError:
        self._process.kill()
        code = self._process.wait()
        log = (self._folder / "log").read_text(errors="replace")
        return RuntimeError(f"the engine ended with exit status {code}; the end of its log:\n{log[-6000:]}")


class Arms:
    """The session's arms: started when first needed, a few kept alive, results of jobs remembered."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._num_started = folder, 0
        self._alive: dict[Engine, Arm] = {}
        self._results: dict[tuple[Engine, bytes], Result] = {}

    def run(self, engine: Engine, job: Job) -> Result:
        """The result of `job` on `engine`, from an earlier run of the session if there was one."""
        key = (engine, pickle.dumps(job))
        if key not in self._results:
            self._results[key] = self._arm(engine).run(job)
        return self._results[key]

    def stop(self) -> None:
        """Ends all."""
        while self._alive:
            self._alive.popitem()[1].stop()

    def _arm(self, engine: Engine) -> Arm:
        arm = self._alive.pop(engine, None)
        if arm is not None and not arm.alive:
            arm.stop()
            arm = None
        if arm is None:
            if len(self._alive) == _MOST_ALIVE:
                self._alive.pop(next(iter(self._alive))).stop()
            self._num_started += 1
            arm = Arm(engine, self._folder / f"arm{self._num_started}")
        # The last in order is the last used.
        self._alive[engine] = arm
        return arm
