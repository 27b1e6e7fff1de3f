"""Reports the result of the demo: one sentence, a table per prompt and a picture."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_spec_tools.demo.pairs import Pair
from vllm_spec_tools.report import Chart, Line, Measurements, Report, Spread, Table, show_spread

_PLAIN, _DRAFTED = "without speculation", "with speculation"
_FEWEST = 3  # undisturbed pairs that a speedup is stated from


def report_of(
    pairs: Sequence[Pair],
    prompts: Sequence[str],
    exactness: str | None,
    problems: Sequence[str],
    origin: Mapping[str, Any],
    *,
    in_16_bits: bool = False,
) -> Report:
    """Makes the report, the verdict first.

    Args:
        exactness: verdict of the certification; None was not tested.
        in_16_bits: whether the target may be computed so: then outputs differ where two tokens are nearly equal.
    """
    different = sum(not pair.is_identical for pair in pairs)
    measurements = Measurements()
    for number, pair in enumerate(pairs):
        for arm, answer in ((_PLAIN, pair.plain), (_DRAFTED, pair.drafted)):
            figures = {"seconds": answer.seconds, "tokens": float(answer.tokens), "tokens_per_second": answer.rate}
            measurements.add(arm, "demo", 1, number, figures | {"others": pair.others})
    numbers = range(1, len(pairs) + 1)
    lines = [
        Line(_PLAIN, dict.fromkeys(numbers, 1.0), "reference"),
        Line(_DRAFTED, {number: pair.speedup for number, pair in zip(numbers, pairs, strict=True)}, "main"),
    ]
    return Report(
        "demo",
        "One request at a time, temperature 0: without and with speculation",
        origin,
        conclusion=[sentence(pairs, exactness, in_16_bits=in_16_bits)],
        tables=[_table(pairs, prompts)],
        charts=[Chart("Each pair", "pair", "tokens/s over no speculation", lines, has_levels=False)],
        problems=[
            *[f"{different} of {len(pairs)} pairs of outputs differ"] * bool(different and not in_16_bits),
            *problems,
        ],
        measurements=measurements,
    )


def sentence(pairs: Sequence[Pair], exactness: str | None, *, in_16_bits: bool = False) -> str:
    """Says speedup, equality of outputs and exactness."""
    different = sum(not pair.is_identical for pair in pairs)
    outputs = f"all {len(pairs)} pairs of outputs identical"
    if different:
        outputs = f"{different} of {len(pairs)} outputs differ, as by rounding" if in_16_bits else f"{different} DIFFER"
    return f"{_speed(pairs)}; {outputs}; exactness: {exactness or 'not tested'}."


def _speed(pairs: Sequence[Pair]) -> str:
    quiet = [pair.speedup for pair in pairs if not pair.is_disturbed]
    busy = len(pairs) - len(quiet)
    is_noise = len(quiet) < min(_FEWEST, len(pairs))
    found = Spread.of([pair.speedup for pair in pairs] if is_noise else quiet)
    assert found is not None
    if is_noise:
        others = statistics.median([pair.others or 0.0 for pair in pairs])
        return (
            f"Disturbed: other processes used {others:.1f} cores (median) during {busy} of {len(pairs)} pairs, so the "
            f"speedup, {found.median:.2f} times ({found.low:.2f} to {found.high:.2f}), is not to be trusted"
        )
    left_out = f"; {busy} disturbed by other processes left out" if busy else ""
    shown = f"{len(quiet)} pairs: {found.low:.2f} to {found.high:.2f}{left_out}"
    return f"With speculation {found.median:.2f} times as fast ({shown})"


def line(number: int, total: int, prompt: str, pair: Pair) -> str:
    """Describes a pair in one line."""
    told = "identical" if pair.is_identical else "DIFFERENT"
    disturbed = f", other processes used {pair.others:.1f} cores" if pair.is_disturbed else ""
    return (
        f"pair {number} of {total}: {pair.plain.rate:.0f} -> {pair.drafted.rate:.0f} tokens/s, "
        f"{pair.speedup:.2f} times, {told}{disturbed}: {prompt.strip().splitlines()[0]}"
    )


def _table(pairs: Sequence[Pair], prompts: Sequence[str]) -> Table:
    rows = []
    for index, prompt in enumerate(prompts):
        own = [pair for pair in pairs if pair.prompt == index]
        rates = (Spread.of(pair.plain.rate for pair in own), Spread.of(pair.drafted.rate for pair in own))
        speedup, is_same = Spread.of(pair.speedup for pair in own), all(pair.is_identical for pair in own)
        shown = [*(show_spread(rate, digits=1) for rate in rates), show_spread(speedup), "yes" if is_same else "NO"]
        rows.append([prompt.strip().splitlines()[0], str(own[0].plain.tokens), *shown])
    header = ("prompt", "tokens", "without, tokens/s", "with, tokens/s", "speedup", "identical")
    return Table("Medians and ranges, disturbed pairs included", header, rows)
