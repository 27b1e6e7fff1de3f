"""Policies in settings, and what their mechanisms gain."""

from tests.unit.tools.bench.replay.cases import recording
from vllm_spec_plugin.tools.bench.replay.ablation import MECHANISMS, Gain, ablate
from vllm_spec_plugin.tools.bench.replay.report import gains_table, rates_table
from vllm_spec_plugin.tools.bench.replay.settings import NONE, OFF, Rates, Sizes, arms_of, replay

SIZES = Sizes(40, 30, (0, 1))


def test_the_policy_is_compared_with_none_fixed_lengths_and_each_proposer_alone() -> None:
    one = recording()
    arms = {arm.name: arm for arm in arms_of(one)}
    assert [name for name in arms if name.startswith("optimal")] == [
        "optimal",
        "optimal, ngram",
        "optimal, draft_model",
    ]
    assert {"none", "K = 0", "K = 4", "K = 4, draft_model"} <= arms.keys()
    # More was not recorded.
    assert "K = 8" not in arms
    rates = {name: replay(one, arms[name], "easy", 1, SIZES) for name in ("none", "K = 4, draft_model", "optimal")}
    assert rates["K = 4, draft_model"].whole > 1.5 * rates["none"].whole
    assert rates["optimal"].whole > rates["none"].whole


def test_every_mechanism_can_be_switched_off_and_is_back_afterwards() -> None:
    one = recording()
    gains = list(ablate(one, "mixed", 2, SIZES))
    assert [gain.mechanism for gain in gains] == list(MECHANISMS)
    # A mechanism that is no longer where it was would raise; one that is not switched off gains exactly nothing.
    assert any(gain.mean for gain in gains)
    assert list(ablate(one, "mixed", 2, SIZES)) == gains


def test_tables_tell_ratios() -> None:
    names = (NONE, OFF, "K = 2", "K = 4", "optimal", "optimal, ngram")
    rates = {
        name: Rates((rate - 1, rate, rate + 5), 2 * rate, 3.0)
        for name, rate in zip(names, (100, 90, 120, 150, 180, 60), strict=True)
    }
    header, rows = rates_table({("easy", 2): rates})
    row = dict(zip(header, rows[0], strict=True))
    assert (row["/ none"], row["K = 0 / none"], row["/ fixed"], row["best"]) == ("1.80", "0.90", "1.20", "4")
    assert (row["/ ngram"], row["drafted"]) == ("3.00", "1.5")


def test_gains_are_told_by_mechanism_and_setting_with_their_errors() -> None:
    gains = [
        Gain("a", "easy", 8, 0.031, 0.01),
        Gain("b", "easy", 8, 0.0, 0.002),
        Gain("a", "hard", 8, -0.02, 0.0),
        Gain("b", "hard", 8, 0.004, 0.003),
    ]
    header, rows = gains_table(gains)
    assert header == ("without", "easy, 8", "hard, 8", "surely")
    assert rows == [("a", "+3.1 ± 1.0", "-2.0 ± 0.0", "1.1"), ("b", "+0.0 ± 0.2", "+0.4 ± 0.3", "0.0")]
