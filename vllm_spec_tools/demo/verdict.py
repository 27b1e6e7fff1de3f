"""Reports the result of the demo: one sentence and a table per prompt."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_spec_tools.demo.pairs import Pair
from vllm_spec_tools.report import Report, Spread, Table, show_spread


def report_of(
    pairs: Sequence[Pair], prompts: Sequence[str], origin: Mapping[str, Any], *, in_16_bits: bool = False
) -> Report:
    """Makes the report.

    Args:
        in_16_bits: whether the target may be computed so: then outputs differ where two tokens are nearly equal.
    """
    different = sum(not pair.is_identical for pair in pairs)
    outputs = f"all {len(pairs)} pairs of outputs identical"
    if different:
        outputs = f"{different} of {len(pairs)} pairs of outputs differ" + (", as by rounding" if in_16_bits else "")
    speedup = show_spread(Spread.of(pair.speedup for pair in pairs))
    medians = [statistics.median(rates) for rates in zip(*((p.plain.rate, p.drafted.rate) for p in pairs), strict=True)]
    answers = [
        {"prompt": pair.prompt, "plain": pair.plain._asdict(), "drafted": pair.drafted._asdict()} for pair in pairs
    ]
    return Report(
        "demo",
        "One request at a time, temperature 0: without and with speculation",
        origin,
        [f"{medians[0]:.1f} tokens/s without speculation, {medians[1]:.1f} with: {speedup} times as fast; {outputs}."],
        [_table(pairs, prompts)],
        problems=[outputs] if different and not in_16_bits else [],
        data={"answers": answers},
    )


def line(number: int, total: int, prompt: str, pair: Pair) -> str:
    """Describes a pair in one line."""
    return (
        f"pair {number} of {total}: {pair.plain.rate:.0f} -> {pair.drafted.rate:.0f} tokens/s, {pair.speedup:.2f} "
        f"times, {'identical' if pair.is_identical else 'DIFFERENT'}: {_beginning(prompt)}"
    )


def _table(pairs: Sequence[Pair], prompts: Sequence[str]) -> Table:
    rows = []
    for index, prompt in enumerate(prompts):
        own = [pair for pair in pairs if pair.prompt == index]
        rates = ([pair.plain.rate for pair in own], [pair.drafted.rate for pair in own])
        shown = [show_spread(Spread.of(rate), digits=1) for rate in rates]
        speedup = show_spread(Spread.of(pair.speedup for pair in own))
        is_same = "yes" if all(pair.is_identical for pair in own) else "NO"
        rows.append([_beginning(prompt), str(own[0].plain.tokens), *shown, speedup, is_same])
    header = ("prompt", "tokens", "without, tokens/s", "with, tokens/s", "speedup", "identical")
    return Table("Medians and ranges", header, rows)


def _beginning(prompt: str) -> str:
    return prompt.strip().splitlines()[0]
