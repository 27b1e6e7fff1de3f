"""Recommends switching speculation on or leaving it off, and why, from the final comparison with it. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_spec_tools.planner.candidates import GRAMMAR, GRAMMAR_FIRST, NONE, PREDICTION, SUFFIX
from vllm_spec_tools.planner.forecast import Forecast
from vllm_spec_tools.planner.measuring import RECOMMENDED, Verified
from vllm_spec_tools.report import Ratio, plural

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
    return max(forecasts, key=lambda forecast: (forecast.score, forecast.nearest))


def verdict(choice: Forecast, verified: Mapping[int, Verified]) -> Recommendation:
    """Answers for the best candidate, by what was measured of it.

    The answer is on where the gain, the geometric mean over the levels, differs from none by `bench`'s test (`Ratio`)
    and is at least 3%, and no level is slower by as much. Forecasts only choose the candidate.

    Args:
        verified: its final comparison with no speculation, by concurrency; empty if nothing is expected to gain.
    """
    if not verified:
        whys = tuple(filter(None, (why_not(choice, level) for level in choice.best)))
        return Recommendation(False, "Leave it off: no proposer is expected to gain anything.", whys)
    ratios = {level: found.speedup for level, found in verified.items()}
    measured = {level: found.median for level, found in ratios.items()}
    # What was measured refutes a forecast that says otherwise.
    whys = tuple(filter(None, (why_not(choice, level) for level, gain in measured.items() if gain < 1 + LEAST_GAIN)))
    what = f"{choice.candidate.name}, up to {plural(choice.tokens, 'token')}"
    idle = [level for level, found in verified.items() if not found.draft_length]
    drafted = f"; nothing was drafted at {_streams(idle)}" if idle else ""
    predicted = _times({level: prediction.speedup for level, prediction in choice.best.items()})
    figures = f"{_by_level(measured)} (measured; predicted {predicted}{drafted})"
    gain = mean_ratio(verified)
    if gain.median < 1 + LEAST_GAIN:
        text = f"Leave it off: the best, {what}, gains less than {LEAST_GAIN:.0%}: {figures}."
        return Recommendation(False, text, (*whys, _misled(choice, measured)))
    if not gain.differs:
        text = f"Leave it off: the best, {what}, has a gain within noise: {figures}."
        interval = " to ".join(f"{limit:.2f}" for limit in gain.interval or ())
        reason = f"The 95% interval of {plural(gain.rounds, 'round')} is {interval}; more --rounds may tell."
        return Recommendation(False, text, (*whys, reason))
    slower = [level for level, found in ratios.items() if found.median <= 1 - LEAST_GAIN and found.differs]
    if slower:
        text = f"Leave it off for this traffic: {what}, is slower at {_streams(slower)}: {figures}."
        pays = [level for level in measured if level not in slower]
        advice = f"If it is at {_streams(pays)} only, ask again with --concurrency "
        advice += f"{','.join(map(str, pays))}."
        return Recommendation(False, text, (*whys, advice))
    return Recommendation(True, f"Switch it on: {what}: {figures}.", whys)


def mean_ratio(verified: Mapping[int, Verified]) -> Ratio:
    """Returns the speedup over all levels, each counting alike: the geometric mean, round by round."""
    speeds = [found.tokens_per_second for found in verified.values()]
    means = (
        statistics.geometric_mean(own[RECOMMENDED][number] / own[NONE][number] for own in speeds)
        for number in speeds[0][NONE]
    )
    found = Ratio.of(means)
    assert found is not None, "both arms did every round"
    return found


def why(choice: Forecast, forecasts: Sequence[Forecast]) -> str | None:
    """Returns why the best candidate is ahead of the next one at the lowest concurrency; None without another one."""
    level = min(choice.best)
    others = [forecast for forecast in forecasts if forecast is not choice]
    if not choice.tokens or not others:
        return None
    following = max(others, key=lambda forecast: forecast.best[level].speedup)
    name = choice.candidate.name
    forced = ", as schemas force much of the outputs"
    reasons = {SUFFIX: ", as text repeats", PREDICTION: ", as requests predict much of their outputs"}
    reason = (reasons | {GRAMMAR: forced, GRAMMAR_FIRST: forced}).get(name, "")
    gives = f"{_gives(choice, level)}, {_gives(following, level)}"
    return f"{name} is the best{reason}: tokens per request and step at {plural(level, 'stream')}: {gives}."


def _gives(forecast: Forecast, level: int) -> str:
    found = forecast.best[level]
    return f"{forecast.candidate.name} {found.tokens_per_step:.2f} ({1e3 * found.draft_seconds:.2f} ms to draft)"


def why_not(forecast: Forecast, level: int) -> str | None:
    """Returns why a candidate gains little at a concurrency, the first obstacle; None where it gains."""
    found = forecast.drafting[level]
    if found.speedup >= 1 + LEAST_GAIN:
        return None
    plain, verifying = forecast.costs[level].plain_step, found.step_seconds - found.draft_seconds
    where = f"At {plural(level, 'stream')} {forecast.candidate.name} does not pay"
    gives = f"with {plural(found.tokens, 'token')} drafted, a step gives {found.tokens_per_step:.2f} tokens per request"
    least = 1 + LEAST_GAIN
    if found.tokens_per_step < least:
        return f"{where}: too little is accepted; {gives}."
    takes = f"takes {verifying / plain:.2f} times as long as one without drafts"
    if found.tokens_per_step * plain < least * verifying:
        return f"{where}: verification is too expensive; {gives} and {takes}."
    if found.decode_speedup < least:
        drafting = f"drafting takes {1e3 * found.draft_seconds:.2f} ms beside {1e3 * verifying:.2f} ms"
        return f"{where}: drafting is too expensive; {gives}, {takes}, and {drafting}."
    return f"{where}: most of the time goes into prompts; its steps alone are {found.decode_speedup:.2f} times as fast."


def _misled(choice: Forecast, measured: Mapping[int, float]) -> str:
    errors = [
        f"{choice.best[level].speedup / found - 1:+.0%} at {plural(level, 'stream')}"
        for level, found in measured.items()
    ]
    return f"The prediction was off by {', '.join(errors)}; what was measured counts."


def _streams(levels: Sequence[int]) -> str:
    return ", ".join(plural(level, "stream") for level in levels)


def _by_level(values: Mapping[int, float]) -> str:
    """Returns speedups at each concurrency: "2.10x at 1 stream, 1.20x at 8"."""
    levels = [plural(level, "stream") if i == 0 else str(level) for i, level in enumerate(values)]
    return ", ".join(f"{value:.2f}x at {level}" for level, value in zip(levels, values.values(), strict=True))


def _times(values: Mapping[int, float]) -> str:
    return ", ".join(f"{value:.2f}x" for value in values.values())
