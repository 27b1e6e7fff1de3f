"""A sweep as JSON."""

import json

import pytest

from tests.unit.tools.bench.load.cases import K_1, RATES, results
from vllm_spec_plugin.tools.bench.arm_words import OPTIMAL
from vllm_spec_plugin.tools.bench.load.agreement import Agreement
from vllm_spec_plugin.tools.bench.load.report.as_json import to_json
from vllm_spec_plugin.tools.bench.load.workloads import EASY


def test_json_holds_every_figure_and_where_it_comes_from() -> None:
    found = results(agreements={(OPTIMAL, EASY, 8): Agreement(9, 2, 0)})
    values = json.loads(json.dumps(to_json(found, {"seed": 5})))
    assert values["provenance"] == {"seed": 5}
    assert values["arms"] == list(RATES)
    cell = next(cell for cell in values["cells"] if (cell["arm"], cell["streams"]) == (OPTIMAL, 8))
    assert (cell["workload"], cell["best_fixed"]) == ("easy", K_1)
    assert cell["ratios"]["best_fixed"]["median"] == pytest.approx(109 / 110)
    assert cell["median"]["median"] == pytest.approx(109 * 1.02)
    assert cell["median_tpot"]["median"] == pytest.approx(1 / 109 / 1.02)
    assert cell["median_ttft"]["median"] == pytest.approx(2 / 109 / 1.02)
    assert list(cell["ttft"]) == ["0", "1", "2"]
    assert cell["agreement"] == {"outputs": 9, "rounding": 2, "wrong": 0}
    (level,) = values["switching"]["levels"]
    assert level["phases"][1]["recovered"][OPTIMAL] == 100
    assert len(values["others"]) == 3 * 3 * len(RATES)
