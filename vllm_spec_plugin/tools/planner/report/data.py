"""Figures of the report as plain values: seconds and bytes. Pure."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from vllm_spec_plugin.tools.planner.forecast import Forecast, acceptance_of, pooled_curve
from vllm_spec_plugin.tools.planner.results import Results


def to_json(results: Results) -> dict[str, Any]:
    """Returns answer, measurements and predictions, as JSON takes them."""
    return {
        "answer": asdict(results.verdict),
        "choice": {"candidate": results.choice.candidate.name, "tokens": results.choice.tokens},
        "workloads": [
            {"name": one.name, "share": one.share, "temperature": one.temperature, "num_tokens": one.num_tokens}
            for one in results.workloads
        ],
        "steps": list(_steps(results)),
        "acceptance": list(_acceptance(results)),
        "memory": {name: asdict(taken) for name, taken in results.memory.items()},
        "forecasts": [_forecast(one) for one in results.forecasts],
        "verified": [
            {"concurrency": level, "error": results.choice.best[level].speedup / found.speedup.median - 1}
            | asdict(found)
            | {"speedup": asdict(found.speedup)}
            for level, found in results.verified.items()
        ],
        "others": list(results.others),
        "remarks": list(results.remarks),
    }


def _steps(results: Results) -> Iterator[dict[str, Any]]:
    """Per engine and concurrency what the target's steps take."""
    for part in results.measured:
        for level in results.levels:
            yield {"engine": part.engine.name, "concurrency": level} | asdict(pooled_curve(part, level))


def _acceptance(results: Results) -> Iterator[dict[str, Any]]:
    """Per candidate, workload and draft length how drafts fare."""
    for part in results.measured:
        for candidate in part.engine.candidates:
            for workload in results.workloads:
                for tokens in candidate.lengths:
                    found = acceptance_of(part, candidate, tokens, workload.name)
                    yield {
                        "candidate": candidate.name,
                        "workload": workload.name,
                        "tokens": tokens,
                        "rates": found.rates,
                        "length": found.length,
                        "tokens_per_step": found.tokens_per_step,
                    } | asdict(found)


def _forecast(one: Forecast) -> dict[str, Any]:
    levels = [
        {
            "concurrency": level,
            "plain_step": costs.plain_step,
            "plain_prompt": costs.plain_prompt,
            "prompt": costs.prompt,
            "drafting": asdict(costs.drafting),
            "best": asdict(one.best[level]),
            "all": [asdict(prediction) for prediction in one.all[level]],
            "limits": asdict(one.limits[level]),
        }
        for level, costs in one.costs.items()
    ]
    return {
        "candidate": one.candidate.name,
        "proposer": one.candidate.proposer,
        "score": one.score,
        "tokens": one.tokens,
        "levels": levels,
    }
