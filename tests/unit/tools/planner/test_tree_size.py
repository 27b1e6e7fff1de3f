"""How large a tree is worth measuring."""

import pytest

from tests.unit.tools.planner.cases import LEVELS, WORKLOADS, cheap, dear, measured
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.medusa.checkpoint import MedusaConfig, read_heads_config
from vllm_spec_tools.bench.curves import StepCurve
from vllm_spec_tools.planner.candidates import Heads, chain_engines
from vllm_spec_tools.planner.forecast import Chained, NoTreeError, best_tree_size, tree_size

ACCURACY = ((0.5, 0.3), (0.4, 0.3))
FLAT, STEEP = StepCurve((1, 9), (1.0, 1.0001)), StepCurve((1, 9), (1.0, 9.0))


def chained(tokens_per_step: float = 1.7) -> Chained:
    return Chained(1.0, ACCURACY, {}, 2, tokens_per_step)


def test_where_verifying_is_free_it_is_as_large_as_allowed_and_where_it_is_dear_small() -> None:
    assert best_tree_size([chained()], {1: FLAT}, 5) == 5
    assert best_tree_size([chained()], {1: STEEP}, 5) == 1
    # 1.5, 1.8, 2 tokens, and less for each further one.
    assert best_tree_size([chained()], {1: StepCurve((1, 2, 3, 4, 9), (1.0, 1.0, 1.0, 1.3, 9.0))}, 5) == 2


def test_what_the_heads_promise_is_scaled_by_what_their_chain_does() -> None:
    # They promise 0.5 + 0.2 accepted tokens of the chain.
    assert chained(1.7).expected([(0,), (1,)]) == pytest.approx(1.8)
    assert chained(1.35).expected([(0,), (1,)]) == pytest.approx(1.4)


def parts(verify):
    folder = str(model_path("medusa"))
    heads = Heads(folder, read_heads_config(folder))
    engine = chain_engines(None, heads, 8)[-1]
    return heads.config, measured(engine, verify=verify, alpha={"medusa": 0.6})


def test_the_bundled_heads_have_trees_where_verifying_is_cheap() -> None:
    config, part = parts(cheap)
    assert 2 < tree_size(config, part, WORKLOADS, LEVELS, 8) <= 8


def test_where_a_chain_is_best_no_tree_is_measured() -> None:
    config, part = parts(dear)
    with pytest.raises(NoTreeError, match=r"the best is a chain of 1"):
        tree_size(config, part, WORKLOADS, LEVELS, 8)


def test_heads_that_nobody_measured_have_no_tree() -> None:
    _, part = parts(cheap)
    with pytest.raises(NoTreeError, match="do not say how accurate they are"):
        tree_size(MedusaConfig(4, 1, 256, 2048), part, WORKLOADS, LEVELS, 8)
