"""Replayed rates and ablations as tables."""

from collections.abc import Iterable, Mapping

from vllm_spec_plugin.tools.bench.replay.ablation import Gain
from vllm_spec_plugin.tools.bench.replay.settings import FIRST_STEPS, NONE, OFF, OPTIMAL, Rates

# A header and rows of cells.
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def rates_table(found: Mapping[tuple[str, int], Mapping[str, Rates]]) -> Table:
    """The policy's tokens per second over those of no speculation, the best fixed draft length, each proposer alone.

    Args:
        found: per workload and number of streams, per arm what it reaches.
    """
    members = [name for name in next(iter(found.values())) if name.startswith(f"{OPTIMAL}, ")]
    header = ("workload", "streams", "none, tok/s", "K = 0 / none", "/ none", f"first {FIRST_STEPS}", "/ fixed", "best")
    rows = []
    for (workload, streams), rates in found.items():
        none, ours = rates[NONE], rates[OPTIMAL]
        fixed = {name: rate for name, rate in rates.items() if name.startswith("K = ") and name != OFF}
        best = max(fixed, key=lambda name: fixed[name].whole)
        rows.append(
            (
                workload,
                str(streams),
                f"{none.whole:.0f}",
                f"{rates[OFF].whole / none.whole:.2f}",
                f"{ours.whole / none.whole:.2f}",
                f"{ours.first / none.first:.2f}",
                f"{ours.whole / fixed[best].whole:.2f}",
                best.removeprefix("K = "),
                *(f"{ours.whole / rates[name].whole:.2f}" for name in members),
                f"{ours.draft_tokens / streams:.1f}",
            )
        )
    alone = [f"/ {name.removeprefix(OPTIMAL)[2:]}" for name in members]
    return (*header, *alone, "drafted"), rows


def gains_table(gains: Iterable[Gain]) -> Table:
    """What each mechanism gains, in percent: a row per mechanism, a column per setting.

    The last column is the most that it gains beyond two standard errors, in any setting.
    """
    cells = {(gain.mechanism, f"{gain.workload}, {gain.streams}"): gain for gain in gains}
    mechanisms = list(dict.fromkeys(mechanism for mechanism, _ in cells))
    settings = list(dict.fromkeys(setting for _, setting in cells))
    rows = []
    for mechanism in mechanisms:
        own = [cells[mechanism, setting] for setting in settings]
        sure = max(gain.mean - 2 * gain.error for gain in own)
        shown = (f"{100 * gain.mean:+.1f} ± {100 * gain.error:.1f}" for gain in own)
        rows.append((mechanism, *shown, f"{100 * max(sure, 0.0):.1f}"))
    return ("without", *settings, "surely"), rows
