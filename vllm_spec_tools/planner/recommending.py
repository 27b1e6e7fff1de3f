"""Recommends switching speculation on or leaving it off, from the final comparison with it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_spec_tools.bench.arms import NONE
from vllm_spec_tools.planner.forecast import Forecast
from vllm_spec_tools.report import Measurements, Ratio, plural

RECOMMENDED, TRAFFIC = "recommended", "all prompts"
# A smaller gain is not worth another thing to look after.
LEAST_GAIN = 0.03


@dataclass(frozen=True)
class Recommendation:
    """The answer."""

    is_on: bool
    answer: str
    reasons: tuple[str, ...]


def choose(forecasts: Sequence[Forecast]) -> Forecast:
    """Returns the candidate with the highest score; where none gains, the one that came nearest to it."""
    return max(forecasts, key=lambda forecast: forecast.score)


def verdict(choice: Forecast, measured: Measurements | None) -> Recommendation:
    """Answers for the best candidate, by what was measured of it.

    The answer is on where the gain, the geometric mean over the levels, differs from none by `bench`'s test (`Ratio`)
    and is at least 3%, and no level is slower by as much. Forecasts only choose the candidate.

    Args:
        measured: tokens per second of `RECOMMENDED` and of `NONE` with `TRAFFIC`, by level and round; None if nothing
            is expected to gain.
    """
    if measured is None:
        whys = tuple(filter(None, (why_not(choice, level) for level in choice.best)))
        return Recommendation(False, "Leave it off: no proposer is expected to gain anything.", whys)
    ratios = ratios_of(measured, choice.best)
    whys = tuple(filter(None, (why_not(choice, level) for level, one in ratios.items() if one.median < 1 + LEAST_GAIN)))
    what = f"{choice.candidate.name}, up to {plural(choice.tokens, 'token')}"
    shown = ", ".join(f"{found.median:.2f}x at {plural(level, 'stream')}" for level, found in ratios.items())
    predicted = ", ".join(f"{prediction.speedup:.2f}x" for prediction in choice.best.values())
    idle = [level for level in ratios if not any(measured.rounds(RECOMMENDED, TRAFFIC, level, "draft_length").values())]
    drafted = f"; nothing was drafted at {_streams(idle)}" if idle else ""
    figures = f"{shown} (measured; predicted {predicted}{drafted})"
    gain = measured.mean_ratio([(RECOMMENDED, NONE, TRAFFIC, level) for level in choice.best], "tokens_per_second")
    assert gain is not None, "both arms did every round"
    if gain.median < 1 + LEAST_GAIN:
        text = f"Leave it off: the best, {what}, gains less than {LEAST_GAIN:.0%}: {figures}."
        return Recommendation(False, text, whys)
    if not gain.differs:
        text = f"Leave it off: the best, {what}, has a gain within noise: {figures}."
        interval = " to ".join(f"{limit:.2f}" for limit in gain.interval or ())
        reason = f"The 95% interval of {plural(gain.rounds, 'round')} is {interval}; more --rounds may tell."
        return Recommendation(False, text, (*whys, reason))
    slower = [level for level, found in ratios.items() if found.median <= 1 - LEAST_GAIN and found.differs]
    if slower:
        text = f"Leave it off for this traffic: {what}, is slower at {_streams(slower)}: {figures}."
        pays = [level for level in ratios if level not in slower]
        advice = f"If it is at {_streams(pays)} only, ask again with --levels {','.join(map(str, pays))}."
        return Recommendation(False, text, (*whys, advice))
    return Recommendation(True, f"Switch it on: {what}: {figures}.", whys)


def ratios_of(measured: Measurements, levels: Mapping[int, object]) -> dict[int, Ratio]:
    """Returns tokens per second of the recommended arm over none, by level."""
    found = {level: measured.ratio(RECOMMENDED, NONE, TRAFFIC, level, "tokens_per_second") for level in levels}
    return {level: one for level, one in found.items() if one is not None}


def why_not(forecast: Forecast, level: int) -> str | None:
    """Returns why a candidate gains little at a concurrency, the first obstacle; None where it gains."""
    found = forecast.drafting[level]
    least = 1 + LEAST_GAIN
    if found.speedup >= least:
        return None
    plain, verifying = forecast.costs[level].plain_step, found.step_seconds - found.draft_seconds
    where = f"At {plural(level, 'stream')} {forecast.candidate.name} does not pay"
    gives = f"with {plural(found.tokens, 'token')} drafted, a step gives {found.tokens_per_step:.2f} tokens per request"
    takes = f"takes {verifying / plain:.2f} times as long as one without drafts"
    if found.tokens_per_step < least:
        return f"{where}: too little is accepted; {gives}."
    if found.tokens_per_step * plain < least * verifying:
        return f"{where}: verification is too expensive; {gives} and {takes}."
    if found.decode_speedup < least:
        drafting = f"drafting takes {1e3 * found.draft_seconds:.2f} ms beside {1e3 * verifying:.2f} ms"
        return f"{where}: drafting is too expensive; {gives}, {takes}, and {drafting}."
    return f"{where}: most of the time goes into prompts; its steps alone are {found.decode_speedup:.2f} times as fast."


def _streams(levels: Sequence[int]) -> str:
    return ", ".join(plural(level, "stream") for level in levels)
