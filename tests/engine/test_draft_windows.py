"""Draft models with sliding windows or experts, beside targets of one or several KV cache groups.

The draft's logits are compared with fresh forward passes in transformers, and so is the target's every greedy token.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.engine.arms import Arms, Engine
from tests.engine.exact import Reference
from tests.engine.greedy import assert_most_likely
from tests.engine.jobs import CertifyRequest, Job
from tests.engine.test_draft_model import assert_fresh
from tests.engine.tiny import WINDOW, repeating_prompts, tiny_model

pytestmark = pytest.mark.engine

NUM_TOKENS = 48
K = 4
ATOL = 2e-3
# Prompts are computed in chunks, and requests begin while others run.
TIGHT: dict[str, Any] = {"max_num_seqs": 12, "max_num_batched_tokens": 96, "max_model_len": 256, "check": True}


@dataclass(frozen=True)
class Pair:
    """A target and a draft."""

    target: str  # Name of its architecture.
    draft: str  # Name of its architecture.
    num_blocks: int  # Of the KV cache, too few for all requests that run together.
    # Entries of the target's config that differ from the usual.
    target_shape: dict[str, Any] = field(default_factory=dict)
    draft_shape: dict[str, Any] = field(default_factory=dict)  # The same for the draft.
    draft_pass: str = "uncompiled"  # How the draft runs, see `DraftPass.execution_mode`.
    accepted: int = 100  # Draft tokens that are accepted at least; a draft with a shape of its own is a stranger.
    options: dict[str, Any] = field(default_factory=dict)  # Further arguments of `Engine`.


PAIRS = {
    # All layers in one KV cache group: the draft's own keep the whole text.
    "mixed beside full": Pair("llama", "gemma3", 30, options={"compiled": True}, draft_pass="compiled"),
    # The target frees blocks that its window has left; the prefix cache gives null blocks for them.
    "full beside window": Pair("mistral", "llama", 46),
    # The draft's layers are in several groups, some of them with layers of the target, whose pages are larger.
    "three quarters of the page": Pair(
        "gemma3",
        "gemma3",
        130,
        target_shape={"num_key_value_heads": 4},
        draft_shape={"num_key_value_heads": 1, "head_dim": 96},
        accepted=0,
    ),
    "sinks and experts": Pair("gpt_oss", "gpt_oss", 110, draft_pass="vllm"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def engine(models: Path, pair: Pair) -> tuple[Engine, Path, Path]:
    """The pair's engine and its models' folders."""
    target = tiny_model(pair.target, models, shape=pair.target_shape)
    draft = tiny_model(pair.draft, models, noise=0.05, shape=pair.draft_shape)
    config = models / f"{target.name}-{draft.name}.yaml"
    config.write_text(
        f"proposer: {{method: draft_model, model: {draft}}}\ndraft_length: {{policy: fixed, tokens: {K}}}\n"
    )
    options = (("skip_tokenizer_init", True),)
    arguments = TIGHT | {"num_blocks": pair.num_blocks, "options": options} | pair.options
    return Engine(config=str(config), model=str(target), **arguments), target, draft


def greedy_job(fault: str = "") -> Job:
    """Texts that grow beyond the window, two of each prompt."""
    prompts = [prompt for prompt in repeating_prompts(12) for _ in range(2)]
    params = {"temperature": 0.0, "max_tokens": NUM_TOKENS, "ignore_eos": True, "detokenize": False}
    return Job([CertifyRequest(prompt, params) for prompt in prompts], record_drafting=0.05, fault=fault)


@pytest.mark.parametrize("name", PAIRS)
def test_drafts_and_outputs_are_those_of_whole_texts(name: str, arms: Arms, models: Path) -> None:
    """In one engine: chunked prompts, prefix-cache hits, preemption, accepted and rejected drafts, checked blocks."""
    pair, job = PAIRS[name], greedy_job()
    arguments, target, draft = engine(models, pair)
    result = arms.run(arguments, job)
    assert result.notes["draft_pass"] == pair.draft_pass
    assert result.preemptions > 0
    assert result.metrics["vllm:prefix_cache_hits"] > 0
    assert result.accepted >= pair.accepted
    assert result.rejected > 30
    assert not any(count for name, count in result.metrics.items() if "proposer_errors" in name)
    # Two steps of three have no drafts: the draft catches up, and windows move on meanwhile.
    idle = arms.run(arguments, greedy_job("idle"))
    prompts = [request.prompt for request in job.requests]
    for done in (result, idle):
        assert_fresh(Reference(draft), done, 20)
        assert sum(len(text) > WINDOW + K for text, _ in done.notes["drafting"]) > 20
        assert {len(tokens) for tokens in done.tokens()} == {NUM_TOKENS}
        assert_most_likely(Reference(target), prompts, done.tokens(), ATOL)
