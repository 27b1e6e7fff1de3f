"""A proposer that goes wrong costs its drafts and nothing else."""

import pytest

from tests.acceptance.chaos.faulty_proposer import REASONS
from tests.engine import texts
from tests.engine.arms import LOOKUP, TIGHT, Arms, Engine
from tests.engine.exact import Reference
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.sizes import is_full

pytestmark = pytest.mark.engine

# Unit tests of drafts have the others, too.
CHOSEN = REASONS if is_full() else ("raise", "out_of_vocabulary", "nan_probs", "too_few_drafts")


@pytest.mark.parametrize("fault", CHOSEN)
def test_fault_in_every_other_step_leaves_the_output_alone_and_is_counted(
    fault: str, arms: Arms, reference: Reference
) -> None:
    """Requests finish with their greedy output, errors are counted by reason, other steps draft on."""
    prompts = texts.sources(reference, 24, 300)
    plain = arms.run(Engine(), greedy_job(prompts, 32))
    result = arms.run(Engine(config=LOOKUP, check=True, **TIGHT), greedy_job(prompts, 32, fault))
    assert_same_tokens(reference, prompts, result, plain)
    assert all(outputs[0].finish_reason == "length" for outputs in result.outputs)
    errors = {
        name.split("reason=")[1].rstrip("}"): count
        for name, count in result.metrics.items()
        if name.startswith("vllm_spec_plugin:proposer_errors_total") and count
    }
    assert set(errors) == {REASONS[fault]}
    assert errors[REASONS[fault]] > 10
    assert result.accepted > 20
