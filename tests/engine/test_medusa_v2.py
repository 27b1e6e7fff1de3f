"""Medusa heads on vLLM's V2 runner: heads draft, vLLM verifies, outputs are those without drafts."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine.arms import Arms, Engine
from tests.engine.exact import Reference
from tests.engine.test_mixed import drafts_by_texts_and_drafter
from tests.engine.v2.cells import SETTINGS, run_greedy, run_sampled
from tests.engine.v2.drafters import Target, bundled_target
from tests.engine.v2.drafters import engine as v2_engine
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path

pytestmark = pytest.mark.engine

FALSE_ALARMS = 1e-3
MEDUSA = {"method": "medusa", "model": str(model_path("medusa"))}


@pytest.fixture(scope="module")
def target(reference: Reference) -> Target:
    return bundled_target(reference)


def medusa(target: Target, *texts: dict[str, Any]) -> Engine:
    """An engine with the bundled heads after proposers from texts, if there are any; lengths are random, 0 to 3."""
    proposer = {"method": "cascade", "proposers": [*texts, MEDUSA]} if texts else MEDUSA
    path = Path(tempfile.mkdtemp(prefix="medusa-")) / "plugin.yaml"
    path.write_text(yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": 3}}))
    return dataclasses.replace(v2_engine("none", target), config=str(path), random_lengths=True)


def test_greedy_outputs_do_not_depend_on_draft_lengths(target: Target, arms: Arms) -> None:
    """Lengths differ by request and step; prompts are computed in chunks."""
    result = run_greedy(arms, medusa(target), target)
    assert min(result.accepted, result.rejected) > 30
    drafts, tokens = (result.metrics[f"vllm:spec_decode_num_{name}"] for name in ("drafts", "draft_tokens"))
    assert drafts < tokens < 3 * drafts


@pytest.mark.skipif(not is_full(), reason="takes minutes; the sampler is vLLM's, which test_v2.py tests")
def test_sampled_output_has_the_exact_distribution(target: Target, arms: Arms) -> None:
    """Seed 0. 3 settings, 8 prompts, 2 outputs of 24 tokens each. False-alarm rate: 1e-3."""
    result, tests = run_sampled(arms, medusa(target), target, SETTINGS, 2)
    assert min(result.accepted, result.rejected) > 30
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / len(tests)


@pytest.mark.skipif(not is_full(), reason="takes minutes; test_mixed.py has the same scheduler")
def test_texts_may_come_before_heads(target: Target, arms: Arms) -> None:
    result = run_greedy(arms, medusa(target, {"method": "suffix", "min_order": 4}), target)
    assert min(drafts_by_texts_and_drafter(result.metrics)) > 5
