"""`vllm-spec certify` finds sound engines exact, and each sabotaged one not."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from tests.engine.arms import DISTANT, DRAFT_MODEL, GRAMMAR, LOOKUP, MEDUSA_TREE_DRAWN, Arms, Engine
from tests.engine.jobs import hooked
from tests.sizes import is_full
from vllm_spec_tools.certify.baseline import Baseline, BaselineSizes, run_baseline
from vllm_spec_tools.certify.checks import check_greedy, check_json, check_samples, check_seeds
from vllm_spec_tools.certify.results import Check
from vllm_spec_tools.certify.target_probabilities import RAW_LOGITS
from vllm_spec_tools.engines import jobs

pytestmark = [pytest.mark.engine, pytest.mark.statistical]

# Without full sizes two settings less, which no sabotage here needs.
SIZES = BaselineSizes(False, 16, 32, 4, 500, 125, 1e9) if is_full() else BaselineSizes(True, 16, 32, 4, 300, 100, 1e9)
# Of a sabotaged engine; sampling stops at the round that shows it.
MOST = dataclasses.replace(SIZES, samples=2000)
# Of each p-value here: 1e-3 over the 40 that there are at most.
THRESHOLD = 1e-3 / 40
# Which check finds what, with drafts that show it.
SABOTAGES = {
    "accept_everything": ("greedy", DISTANT),
    "recover_from_p": ("temperature 1", DISTANT),
    "ignore_min_p": ("min-p", LOOKUP),
    "penalise_without_drafts": ("penalties", DRAFT_MODEL),
    "one_noise_for_all_positions": ("seeds", LOOKUP),
    "grammar_at_the_first_row_only": ("JSON", LOOKUP),
    "grammar_keeps_a_step": ("JSON", GRAMMAR),
}
if is_full():
    # Checks that others above test, too.
    SABOTAGES |= {
        "lenient": ("greedy", DISTANT),
        "stale_target_kv": ("greedy", LOOKUP),
        "ignore_temperature": ("temperature 0.5", DISTANT),
        "siblings_from_p": ("temperature 1", MEDUSA_TREE_DRAWN),
    }
# Its text before the first " yield" counts as reasoning; no prompt has that token.
REASONING = {"reasoning_parser": "yield", "reasoning_parser_plugin": str(Path(__file__).parent / "reasoning.py")}
REASONING_END = 1476


def engine_of(config: str) -> Engine:
    """One with the parser where the checks of JSON run, which need it."""
    return Engine(config=config, options=tuple(REASONING.items()) if config in (LOOKUP, GRAMMAR) else ())


class Sabotaged:
    """An engine of the session, with a sabotage in force."""

    def __init__(self, arms: Arms, engine: Engine, sabotage: str = "") -> None:
        self._arms, self._engine, self._sabotage = arms, engine, sabotage

    def run(self, job: jobs.Job) -> jobs.JobResult:
        return self._arms.run(self._engine, hooked(job, sabotage=self._sabotage))

    def facts(self) -> dict[str, Any]:
        return {
            "dtype": "float32",
            "max_model_len": self._engine.max_model_len,
            "vocab_size": 4096,
            "has_tokenizer": True,
            "reasoning_end": REASONING_END,
            "block_size": 32,
        }


@pytest.fixture(scope="module")
def baseline(arms: Arms) -> Baseline:
    plain = Engine(options=tuple((RAW_LOGITS | REASONING).items()))
    return run_baseline(Sabotaged(arms, plain), None, SIZES, None, lambda what: None)


def checked(kind: str, engine: Sabotaged, baseline: Baseline, sizes: BaselineSizes) -> list[Check]:
    if kind == "greedy":
        return [check_greedy(engine, baseline, kind, "")]
    if kind == "JSON":
        return [check_json(engine, baseline, "")]
    work = dataclasses.replace(baseline.work, settings={kind: baseline.work.settings[kind]})
    one = dataclasses.replace(baseline, work=work, samples={kind: baseline.samples[kind]})
    return list(check_samples(engine, one, "", sizes, 4, THRESHOLD, lambda what: None))


@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_a_sabotage_is_caught_by_the_check_that_passes_without_it(
    sabotage: str, arms: Arms, baseline: Baseline
) -> None:
    """4 prompts, 300 continuations each (full: 500), with a sabotage up to 2,000. Seed 0.

    False-alarm rate of this file: 1e-3.
    """
    kind, config = SABOTAGES[sabotage]
    for name, expected, sizes in (("", "exact", SIZES), (sabotage, "not exact", MOST)):
        [check] = checked(kind, Sabotaged(arms, engine_of(config), name), baseline, sizes)
        print(f"{name or 'sound'}: {check}")
        assert check.outcome == expected


def test_the_engine_without_speculation_has_the_law_that_is_read_from_it(baseline: Baseline) -> None:
    """7 settings (full: 9), 4 prompts, 300 continuations each (full: 500). Seed 0.

    False-alarm rate of this file: 1e-3.
    """
    p_values = {name: samples.log_e for name, samples in baseline.control.items()}
    print(p_values)
    assert len(p_values) == (9 if is_full() else 7)
    assert max(p_values.values()) < -math.log(THRESHOLD)


def test_seeds_are_the_same_alone_and_in_a_crowd(arms: Arms, baseline: Baseline) -> None:
    assert (
        check_seeds(Sabotaged(arms, Engine(config=LOOKUP, options=tuple(REASONING.items()))), baseline, "").outcome
        == "exact"
    )
