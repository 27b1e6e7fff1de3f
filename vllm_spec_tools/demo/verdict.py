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
    return Report(
        "demo",
        "One request at a time, temperature 0: without and with speculation",
        origin,
        conclusion=[sentence(pairs, exactness, in_16_bits=in_16_bits)],
        tables=[_table(pairs, prompts)],
        charts=[_progress(pairs), _speedups(pairs)],
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
    others = statistics.median([pair.others or 0.0 for pair in pairs])
    if len(quiet) < min(_FEWEST, len(pairs)):
        told = Spread.of(pair.speedup for pair in pairs)
        assert told is not None
        return (
            f"Disturbed: other processes used {others:.1f} cores (median) during {busy} of {len(pairs)} pairs, so the "
            f"speedup, {told.median:.2f} times ({told.low:.2f} to {told.high:.2f}), is not to be trusted"
        )
    speedup = Spread.of(quiet)
    assert speedup is not None
    left_out = f"; {busy} disturbed by other processes left out" if busy else ""
    return (
        f"With speculation {speedup.median:.2f} times as fast ({len(quiet)} pairs: {speedup.low:.2f} to "
        f"{speedup.high:.2f}{left_out})"
    )


def _table(pairs: Sequence[Pair], prompts: Sequence[str]) -> Table:
    rows = []
    for index, prompt in enumerate(prompts):
        own = [pair for pair in pairs if pair.prompt == index]
        rates = (Spread.of(pair.plain.rate for pair in own), Spread.of(pair.drafted.rate for pair in own))
        rows.append(
            [
                prompt.strip().splitlines()[0],
                str(own[0].plain.tokens),
                *(show_spread(rate, digits=1) for rate in rates),
                show_spread(Spread.of(pair.speedup for pair in own)),
                "yes" if all(pair.is_identical for pair in own) else "NO",
            ]
        )
    header = ("prompt", "tokens", "without, tokens/s", "with, tokens/s", "speedup", "identical")
    return Table("Medians and ranges, disturbed pairs included", header, rows)


def _progress(pairs: Sequence[Pair]) -> Chart:
    """Output tokens over time, of the pair whose speedup is the median."""
    pair = sorted(pairs, key=lambda pair: pair.speedup)[len(pairs) // 2]
    plain, drafted = (
        {0.0: 0.0} | {piece.seconds: float(piece.tokens) for piece in answer.pieces if piece.text}
        for answer in (pair.plain, pair.drafted)
    )
    lines = [Line(_PLAIN, plain, "reference"), Line(_DRAFTED, drafted, "main")]
    return Chart(f"The median pair: {pair.speedup:.2f} times", "seconds", "output tokens", lines, has_levels=False)


def _speedups(pairs: Sequence[Pair]) -> Chart:
    """The speedup of each pair, in the order of measurement."""
    numbers = range(1, len(pairs) + 1)
    lines = [
        Line(_PLAIN, dict.fromkeys(numbers, 1.0), "reference"),
        Line(_DRAFTED, {number: pair.speedup for number, pair in zip(numbers, pairs, strict=True)}, "main"),
    ]
    return Chart("Each pair", "pair", "tokens/s over no speculation", lines, has_levels=False)
