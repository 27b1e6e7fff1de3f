"""Runs steps at start-up: creates kernels of small sizes, and times steps.

On CPU oneDNN creates a kernel for each new number of tokens, which can take as long as a small model's step. With
drafts the numbers vary: without this, a server's first minutes would be slower with drafts than without, and the policy
of draft lengths would learn from it. See docs/design/v1.md.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.cuda import Worker
else:
    Worker = object

logger = logging.getLogger("vllm.vllm_spec_plugin")

_MIB = 2**20
# Time limits of `make_kernels`, for the target and for a draft model.
TARGET_SECONDS, DRAFT_SECONDS = 4.0, 1.0
# oneDNN keeps 1,024 kernels, about five per size and model. When it is full, every step takes 4 to 7% longer.
MOST_KERNEL_SIZES = 96
PROBE_SECONDS = 1.0
# The most informative sizes come first, as time may run out. The first step of a size may include set-up.
_SIZES = (1, 8, 32, 4, 16, 2, 64, 128, 1, 4, 8)


class SpecWorkerMixin(Worker):
    """Mixin before a vLLM worker whose runner is the plugin's."""

    model_runner: Any

    def compile_or_warm_up_model(self) -> Any:
        """Warms up, creates kernels, times steps, and logs what is served."""
        times = super().compile_or_warm_up_model()
        self.model_runner.make_kernels()
        self.model_runner.probe_steps()
        if self.rank == 0:
            logger.info("%s", self.model_runner.describe())
        return times

    def renew_drafter(self) -> None:
        """See `ReloadsDrafter`."""
        self.model_runner.drafter.renew()


def describe(summary: Mapping[str, str], weight_bytes: int, kv_bytes: int, kv_draft_bytes: int) -> str:
    """Describes what is served in one line.

    Args:
        summary: see `PluginConfig.summary`.
        weight_bytes: bytes of the proposers' weights on this rank.
        kv_bytes: bytes of the KV cache on this rank.
        kv_draft_bytes: bytes of these for the draft model.
    """
    exactness = "exact" if summary["exact"] == "true" else f"LOSSY (lenience {summary['lenience']})"
    share = kv_draft_bytes / kv_bytes if kv_bytes else 0.0
    return (
        f"vllm_spec_plugin {summary['version']}: {summary['methods']}, policy {summary['policy']}, up to "
        f"{summary['tokens']} draft tokens, {exactness}; memory per rank: {weight_bytes / _MIB:,.1f} MiB of draft "
        f"weights, {share:.0%} of the KV cache ({kv_draft_bytes / _MIB:,.1f} of {kv_bytes / _MIB:,.1f} MiB)"
    )


def make_kernels(run: Callable[[int], None], max_tokens: int, seconds: float) -> int:
    """Runs steps of 1, 2, 3, ... tokens until the time is up.

    Args:
        run: computes a step of that many tokens, and waits for it.
        max_tokens: maximum number of tokens of a step.
        seconds: time limit; the last step may exceed it.

    Returns:
        The largest size that was run; 0 if none was.
    """
    begin = time.perf_counter()
    for size in range(1, max_tokens + 1):
        if time.perf_counter() - begin >= seconds:
            return size - 1
        run(size)
    return max_tokens


def probe_steps(run: Callable[[int], None], max_tokens: int, seconds: float | None) -> list[tuple[int, float]]:
    """Times steps until the time is up.

    Args:
        run: computes a step of that many tokens, and waits for it.
        max_tokens: maximum number of tokens of a step.
        seconds: time limit; None runs the first three sizes without a limit, for ranks that must run the same steps.

    Returns:
        (tokens, seconds) of each step that was measured.
    """
    sizes = [size for size in _SIZES if size <= max_tokens]
    begin, measured = time.perf_counter(), list[tuple[int, float]]()
    for size in sizes if seconds is not None else sizes[:3]:
        if not measured:
            run(size)
        start = time.perf_counter()
        run(size)
        end = time.perf_counter()
        measured.append((size, end - start))
        # The next step probably takes no longer than all before it.
        if seconds is not None and 2 * (end - begin) > seconds:
            break
    return measured
