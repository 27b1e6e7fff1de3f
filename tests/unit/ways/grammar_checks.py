"""Checks of drafts from grammars in every way to draft."""

import re
from collections.abc import Callable
from typing import Any

from vllm.sampling_params import StructuredOutputsParams
from vllm.tokenizers import get_tokenizer

from tests.unit.scheduling.pipeline import Pipeline
from tests.unit.scheduling.test_pipelines import unpredictable
from tests.ways.pipelines import Bench, add
from vllm_spec_plugin.gate import refusals
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.grammar import proposer
from vllm_spec_plugin.proposers.grammar.state import Kind


def pipeline_of(bench: Bench, next_token: Callable[[list[int]], int]) -> Pipeline:
    """Drafts from grammars first, for as long as a busy machine takes."""
    # The engine's configuration is one of V1, which refuses grammars before heads.
    bench.monkeypatch.setattr(refusals, "check", lambda *_: None)
    bench.monkeypatch.setattr(proposer, "SECONDS", 10.0)
    return bench.pipeline(next_token, first={"method": "grammar"})


def grammars(bench: Bench) -> None:
    """One request's output is the only one that its grammar allows; the other has no grammar."""
    tokenizer = get_tokenizer(str(model_path("target")))
    forced = tokenizer.encode("def main(self, value):\n    return value", add_special_tokens=False)

    def next_token(text: list[int]) -> int:
        return [*forced, *[0] * 40][len(text) - 5] if text[0] == 100 else unpredictable(text)

    pipeline = pipeline_of(bench, next_token)
    pipeline.add("free", 2, 5, 30)
    params = {"structured_outputs": StructuredOutputsParams(regex=re.escape(tokenizer.decode(forced)))}
    add(pipeline, "structured", 5, len(forced), params)
    pipeline.finish()
    assert pipeline.outputs("structured", 5, len(forced)) == forced
    counters = pipeline.counters["grammar"]
    # The first token is sampled without a draft.
    assert sum(counters.accepted_per_position) >= 0.6 * (len(forced) - 1)
    assert counters.drafts <= len(forced)
    assert counters.verified_by_kind[Kind.FORCED] == counters.accepted_by_kind[Kind.FORCED]
    assert sum(counters.verified_by_kind) == sum(counters.verified_per_position)


def continued(bench: Bench) -> None:
    """The drafter chooses a word; what the grammar forces after it is drafted in the same step."""
    tokenizer = get_tokenizer(str(model_path("target")))
    output = tokenizer.encode("value = self.name_of_the_value" * 3, add_special_tokens=False)

    def next_token(text: list[int]) -> int:
        return [*output, *[0] * 60][len(text) - 5]

    pipeline = pipeline_of(bench, next_token)
    adapter, parts = pipeline.scheduler._adapter, list[int]()
    drafted = adapter.drafted

    def noting(requests: Any, result: Any) -> None:
        parts.extend(result.continued.values())
        drafted(requests, result)

    bench.monkeypatch.setattr(adapter, "drafted", noting)
    regex = r"((value|other) = self\.name_of_the_(value|other)){3}"
    add(pipeline, "a", 5, len(output), {"structured_outputs": StructuredOutputsParams(regex=regex)})
    pipeline.finish()
    assert pipeline.outputs("a", 5, len(output)) == output
    assert any(parts)
    drafter = pipeline.counters[bench.methods[-1]]
    assert sum(drafter.accepted_per_position)
    assert drafter.draft_tokens >= sum(drafter.verified_per_position) > 0
    counters = pipeline.counters["grammar"]
    assert counters.draft_tokens >= sum(counters.verified_by_kind) == sum(counters.verified_per_position) > 0
