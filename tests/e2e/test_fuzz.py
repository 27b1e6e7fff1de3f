"""Random combinations of parameters: answers equal those without drafts, or are refused; the server stays whole."""

import asyncio
import os
from pathlib import Path

import pytest
import yaml

from tests.e2e.fuzz.cases import Cases
from tests.e2e.fuzz.run import fuzz
from tests.e2e.fuzz.ways import NUM_DRAFT_TOKENS, WAYS
from tests.engine import texts
from tests.engine.exact import Reference
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.serving import Server

pytestmark = pytest.mark.e2e

QUICK = ("own cascade", "vLLM's draft model", "mixed")
# By Triton's interpreter a step takes a tenth of a second.
NUM_CASES = {"v1": 2000 if is_full() else 150, "v2": 300}
SEED = 1
# Prompts are computed in chunks, and few blocks make requests be preempted.
OPTIONS = (
    *("--max-model-len", "512", "--block-size", "32", "--num-gpu-blocks-override", "72"),
    *("--max-num-seqs", "12", "--max-num-batched-tokens", "256"),
    # Else a model may write blanks for as long as it may write.
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
)


@pytest.fixture(scope="module")
def reference() -> Reference:
    """The target in transformers."""
    return Reference()


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in WAYS]
)
def test_any_parameters_are_served_as_without_drafts_or_refused(
    name: str, reference: Reference, tmp_path: Path
) -> None:
    """Greedy answers equal those to the same request with `spec: off`; where the plugin verifies, seeded ones as well.

    Greedy outputs may differ where the logits of two tokens differ by less than 1e-4. Of answers without token ids, and
    seeded ones, of which that is not known, one in 500 may differ if it does not when sent again. Seed 1.
    """
    way = WAYS[name]
    path = tmp_path / "plugin.yaml"
    path.write_text(yaml.safe_dump(way.config))
    prompts = [*texts.repetitive(reference), *texts.sources(reference, 24, 200)]
    drawing = Cases(SEED, prompts, [reference.tokenizer.decode(prompt[-60:]) for prompt in prompts], NUM_DRAFT_TOKENS)
    size = int(os.environ.get("FUZZ_CASES", NUM_CASES[way.runner]))
    cases = [drawing.draw(way.methods, takes_predictions=way.takes_predictions) for _ in range(size)]
    model = str(model_path("target"))
    with Server(model, path, extra_args=OPTIONS, environment=way.environment({}), log_path=tmp_path / "log") as server:
        outcome = asyncio.run(fuzz(server, model, cases, reference, same_seeds=not way.vllm_verifies))
        metrics = {} if outcome.faults else server.metrics()
    drafted, accepted = (metrics.get(f"vllm:spec_decode_num_{kind}_tokens_total", 0) for kind in ("draft", "accepted"))
    print(f"{name}: {size} requests, {dict(outcome.counts)}, {drafted:.0f} draft tokens, {accepted:.0f} accepted")
    assert not outcome.faults, "\n".join([f"{len(outcome.faults)} faults", *outcome.faults[:20]])
    assert len(outcome.unrepeated) <= size / 500, "\n".join(outcome.unrepeated)
    assert outcome.counts["greedy"] > size / 4
    assert 50 < accepted < drafted
