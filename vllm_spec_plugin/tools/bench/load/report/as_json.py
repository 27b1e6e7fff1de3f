"""The sweep as JSON. Pure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vllm_spec_plugin.tools.bench.load.summary import best_fixed, over
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults
from vllm_spec_plugin.tools.bench.load.switching import RECOVERED, WINDOW
from vllm_spec_plugin.tools.bench.spread import Spread

_SCHEMA = 1


def to_json(results: SweepResults, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, in plain values; times in seconds."""
    cells = []
    for workload, streams in results.cells:
        best = best_fixed(results.summaries, results.fixed, workload, streams)
        for name in results.arms:
            key = (name, workload, streams)
            summary, agreement = results.summaries[key], results.agreements.get(key)
            cells.append(
                {"workload": workload, "streams": streams, "arm": name, "best_fixed": best}
                | asdict(summary)
                | {
                    "median": _as_dict(summary.spread("tokens_per_second")),
                    "median_ttft": _as_dict(summary.spread("ttft")),
                    "median_tpot": _as_dict(summary.spread("tpot")),
                    "ratios": {
                        "none": _as_dict(over(results.summaries, name, results.reference, workload, streams)),
                        "best_fixed": _as_dict(over(results.summaries, name, best, workload, streams)),
                    },
                    "agreement": agreement and asdict(agreement),
                }
            )
    switches = [{"streams": streams} | asdict(switch) for streams, switch in results.switches.items()]
    return {
        "schema": _SCHEMA,
        "provenance": dict(provenance),
        "arms": list(results.arms),
        "others": results.others,
        "cells": cells,
        "switching": {"window": WINDOW, "recovered": RECOVERED, "levels": switches},
    }


def _as_dict(spread: Spread | None) -> dict[str, Any] | None:
    return None if spread is None else asdict(spread)
