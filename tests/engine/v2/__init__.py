"""Runs vLLM's V2 model runner in engine tests; docs/v2.md says how, and what runs.

On a CPU Triton's interpreter runs V2's kernels. A distribution of two entry points, in `path`, makes every process of
vLLM do so from its start: Triton finds a backend for CPUs, and vLLM calls `interpreter.mend`.
"""

import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from vllm_spec_tools.engines.serving import runs_on_cpu

RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
_PATH = Path(__file__).parent / "path"


def runner_environment(runner: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which vLLM's processes use that model runner.

    Args:
        runner: "v1" or "v2"; "default" leaves the choice to vLLM, which takes V2 where there is Triton.
        environment: of the processes otherwise; its PYTHONPATH leads to this package.
    """
    chosen = {name: value for name, value in environment.items() if name != RUNNER}
    if runner != "default":
        chosen[RUNNER] = str(int(runner == "v2"))
    if runner != "v1" and runs_on_cpu() and not entry_points(group="triton.backends", name="cpu"):
        chosen |= {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join((str(_PATH), environment["PYTHONPATH"]))}
    return chosen
