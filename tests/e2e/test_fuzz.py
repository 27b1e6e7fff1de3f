"""Random combinations of parameters: answers equal those without drafts, or are refused; the server stays whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fuzz.servers import SERVERS
from tests.e2e.fuzz.serving import serve_and_fuzz
from tests.engine.exact import Reference
from tests.engine.faults import REASONS
from tests.sizes import is_full
from vllm_spec_plugin.gate.scopes import OWN
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

QUICK = ("own cascade", "mixed")
# By Triton's interpreter a step takes a tenth of a second.
SIZES = {"v1": 2000 if is_full() else 150, "v2": 300}
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in SERVERS]


@pytest.fixture(scope="module")
def reference() -> Reference:
    """The target in transformers."""
    return Reference()


@pytest.mark.parametrize("name", NAMES)
def test_any_parameters_are_served_as_without_drafts_or_refused(
    name: str, reference: Reference, serve: Callable[..., Server], tmp_path: Path
) -> None:
    """Greedy answers equal those to the same request with `spec: off`; where the plugin verifies, seeded ones as well.

    Greedy outputs may differ where the logits of two tokens differ by less than 1e-4. Of answers without token ids, and
    seeded ones, of which that is not known, one in 500 may differ if it does not when sent again. Seed 1.
    """
    size = SIZES[SERVERS[name].runner]
    # V2 needs Triton, and faults their plugin, from the start of a process.
    how: dict[str, Any] = {"serve": serve} if SERVERS[name].runner == "v1" and not SERVERS[name].has_faults else {}
    outcome = serve_and_fuzz(name, size, reference, tmp_path, **how)
    counts = outcome.counts
    assert not outcome.faults, "\n".join([f"{len(outcome.faults)} faults", *outcome.faults[:20]])
    assert len(outcome.unrepeated) <= max(1, size / 500), "\n".join(outcome.unrepeated)
    assert min(counts["greedy"], counts["seeded" if SERVERS[name].way in OWN.ways else "sampled"]) > size / 10
    assert 50 < counts["accepted"] < counts["drafted"]
    assert outcome.reasons == (set(REASONS.values()) if SERVERS[name].has_faults else set())
