"""Recommends switching speculation on or leaving it off, and why, from forecasts and a check of the best. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_spec_tools.planner.candidates import PREDICTION, SUFFIX
from vllm_spec_tools.planner.forecast import Forecast
from vllm_spec_tools.planner.measuring import Verified
from vllm_spec_tools.report import plural

# Less than that over no speculation is not worth another thing to look after, nor told from nothing by a short run.
LEAST_GAIN = 0.03


@dataclass(frozen=True)
class Recommendation:
    """The answer."""

    is_on: bool
    answer: str
    reasons: tuple[str, ...]


def choose(forecasts: Sequence[Forecast]) -> Forecast:
    """The candidate with the highest score; where none pays, the one that came nearest to it."""
    return max(forecasts, key=lambda forecast: (forecast.score, forecast.nearest))


def verdict(choice: Forecast, verified: Mapping[int, Verified]) -> Recommendation:
    """The answer for the best candidate.

    What was measured counts more than what was predicted: the answer is on where the mean gain over the levels, each
    counting alike, is at least 3 %, and more than rounds differ by; and none is slower by as much.

    Args:
        verified: what was measured of it, by concurrency; empty if nothing was.
    """
    predicted = {level: prediction.speedup for level, prediction in choice.best.items()}
    what = f"{choice.candidate.name}, up to {plural(choice.tokens, 'token')}"
    whys = tuple(filter(None, (why_not(choice, level) for level in choice.best)))
    if not verified:
        if choice.score < 1 + LEAST_GAIN:
            if not choice.tokens:
                return Recommendation(False, "Leave it off: no proposer is expected to gain anything.", whys)
            gain = f"is expected to gain less than {LEAST_GAIN:.0%}: {_by_level(predicted)}"
            return Recommendation(False, f"Leave it off: the best, {what}, {gain}.", whys)
        return Recommendation(True, f"Switch it on: {what}: {_by_level(predicted)} (predicted, not measured).", whys)
    measured = {level: found.speedup.median for level, found in verified.items()}
    idle = [level for level, found in verified.items() if not found.draft_length]
    drafted = f"; nothing was drafted at {_streams(idle)}" if idle else ""
    figures = f"{_by_level(measured)} (measured; predicted {_times(predicted)}{drafted})"
    slower = [
        level for level, speedup in measured.items() if speedup <= 1 - LEAST_GAIN and verified[level].speedup.high < 1
    ]
    if statistics.geometric_mean(measured.values()) < 1 + LEAST_GAIN:
        reasons = (*whys, _misled(choice, measured))
        return Recommendation(
            False, f"Leave it off: the best, {what}, gains less than {LEAST_GAIN:.0%}: {figures}.", reasons
        )
    if statistics.geometric_mean(found.speedup.low for found in verified.values()) < 1:
        lows = _by_level({level: found.speedup.low for level, found in verified.items()})
        text = f"Leave it off: the best, {what}, has a gain within run-to-run noise: {figures}."
        return Recommendation(False, text, (*whys, f"In the lower quartile of rounds it was at {lows}."))
    if slower:
        text = f"Leave it off for this traffic: {what}, is slower at {_streams(slower)}: {figures}."
        pays = [level for level in measured if level not in slower]
        advice = f"If it is at {_streams(pays)} only, ask again with --concurrency "
        advice += f"{','.join(map(str, pays))}."
        return Recommendation(False, text, (*whys, advice))
    return Recommendation(True, f"Switch it on: {what}: {figures}.", whys)


def why(choice: Forecast, forecasts: Sequence[Forecast]) -> str | None:
    """Why the best candidate is ahead of the next one at the lowest concurrency; None without another one."""
    level = min(choice.best)
    others = [forecast for forecast in forecasts if forecast is not choice]
    if not choice.tokens or not others:
        return None
    following = max(others, key=lambda forecast: forecast.best[level].speedup)
    name = choice.candidate.name
    reason = {SUFFIX: ", as text repeats", PREDICTION: ", as requests predict much of their outputs"}.get(name, "")
    gives = f"{_gives(choice, level)}, {_gives(following, level)}"
    return f"{name} is the best{reason}: tokens per request and step at {plural(level, 'stream')}: {gives}."


def _gives(forecast: Forecast, level: int) -> str:
    found = forecast.best[level]
    return f"{forecast.candidate.name} {found.tokens_per_step:.2f} ({1e3 * found.draft_seconds:.2f} ms to draft)"


def why_not(forecast: Forecast, level: int) -> str | None:
    """Why a candidate gains little at a concurrency, by the first thing that is in its way; None where it does not."""
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
        return f"{where}: verification is too dear; {gives} and {takes}."
    if found.decode_speedup < least:
        drafting = f"drafting takes {1e3 * found.draft_seconds:.2f} ms beside {1e3 * verifying:.2f} ms"
        return f"{where}: drafting is too dear; {gives}, {takes}, and {drafting}."
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
