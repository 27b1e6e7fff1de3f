"""KV connectors: drafts beside prompts whose keys and values come from elsewhere leave outputs as they are."""

from pathlib import Path

import pytest

from tests.engine import texts
from tests.engine.arms import GRAMMAR, LOOKUP, MEDUSA, PREDICTION, SUFFIX, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import CertifyRequest, Job
from tests.engine.kinds import predicted
from tests.engine.ways import VLLMS_EAGLE3
from tests.fixed_length import STOCK_DRAFT_MODEL, native
from tests.matrix.cells import greedy_faults
from tests.sizes import is_full
from vllm_spec_plugin.gate.rules import TESTED_CONNECTORS

pytestmark = pytest.mark.engine

CONFIGS = {"suffix": SUFFIX}
if is_full():
    CONFIGS |= {
        "vLLM's eagle3": native(VLLMS_EAGLE3),
        "ngram": LOOKUP,
        "prediction": PREDICTION,
        "grammar": GRAMMAR,
        "medusa": MEDUSA,
        "vLLM's draft_model": native(STOCK_DRAFT_MODEL),
    }
NUM_TOKENS = 48
# Longer than the output.
STRUCTURE = {"structured_outputs": {"regex": r"(self\.(name|value) = [a-z]{1,4} \+ self\.default_value\n){20,30}"}}


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    """Prompts of a block or more; ExampleConnector mixes up those with one token in their last block."""
    prompts = texts.sources(reference, 48, 300)
    return [prompt for prompt in prompts if len(prompt) > texts.BLOCK_SIZE and len(prompt) % texts.BLOCK_SIZE != 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which ExampleConnector stores keys and values."""
    return tmp_path_factory.mktemp("stored")


def engine(config: str, connector: str, path: Path) -> Engine:
    extra = (("shared_storage_path", str(path)),) if connector == "ExampleConnector" else ()
    transfer = (("kv_connector", connector), ("kv_role", "kv_both"), ("kv_connector_extra_config", extra))
    # A prompt's blocks come from the connector, not from the prefix cache; ExampleConnector stores no chunks.
    options = (("enable_prefix_caching", False), ("kv_transfer_config", transfer))
    return Engine(config=config, max_num_batched_tokens=8192, options=options)


def job(prompts: list[Tokens], **params: object) -> Job:
    own = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 0.0, **params}
    return Job([CertifyRequest(prompt, own) for prompt in prompts])


@pytest.mark.parametrize("connector", TESTED_CONNECTORS if is_full() else TESTED_CONNECTORS[:1])
@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_are_those_without_drafts(
    name: str, connector: str, arms: Arms, prompts: list[Tokens], folder: Path
) -> None:
    """Also in a second run, whose prompts ExampleConnector loads; DecodeBenchConnector makes all of them up."""
    params = STRUCTURE if name == "grammar" else {}
    plain = arms.run(engine("", connector, folder / "plain"), job(prompts, logprobs=2, **params))
    served = engine(CONFIGS[name], connector, folder / name)
    greedy = Job(predicted(job(prompts).requests, plain.tokens())) if name == "prediction" else job(prompts, **params)
    first = arms.run(served, greedy)
    again = arms.run(served, Job(greedy.requests, torch_seed=1))
    assert again.metrics["vllm:external_prefix_cache_hits"] > 0.8 * sum(map(len, prompts))
    for result in (first, again):
        assert not greedy_faults(result, plain)
        assert not any(count for metric, count in result.metrics.items() if "proposer_errors" in metric)
        assert min(result.accepted, result.rejected) > 100
