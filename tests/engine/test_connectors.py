"""KV connectors: drafts beside prompts whose keys and values come from elsewhere leave outputs as they are."""

from pathlib import Path

import pytest

from tests.engine import texts
from tests.engine.arms import LOOKUP, MEDUSA, PREDICTION, SUFFIX, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import Job, Request, Result
from tests.engine.test_prediction import predicted
from tests.matrix.cells import greedy_faults

pytestmark = pytest.mark.engine

CONFIGS = {"suffix": SUFFIX, "ngram": LOOKUP, "prediction": PREDICTION, "medusa": MEDUSA}
NUM_TOKENS = 48


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    # Those of at least a block: of others ExampleConnector loads nothing.
    return [prompt for prompt in texts.sources(reference, 48, 300) if len(prompt) > texts.BLOCK_SIZE]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ExampleConnector stores keys and values."""
    return tmp_path_factory.mktemp("stored")


def engine(config: str, connector: str, path: Path) -> Engine:
    extra = (("shared_storage_path", str(path)),) if connector == "ExampleConnector" else ()
    transfer = (("kv_connector", connector), ("kv_role", "kv_both"), ("kv_connector_extra_config", extra))
    # A prompt's blocks come from the connector, not from the prefix cache.
    return Engine(config=config, options=(("enable_prefix_caching", False), ("kv_transfer_config", transfer)))


def job(prompts: list[Tokens], **params: object) -> Job:
    own = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 0.0, **params}
    return Job([Request(prompt, own) for prompt in prompts])


@pytest.mark.parametrize("connector", ["ExampleConnector", "DecodeBenchConnector"])
@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_are_those_without_drafts(
    name: str, connector: str, arms: Arms, prompts: list[Tokens], tmp_path: Path
) -> None:
    """Also of a second run, whose prompts ExampleConnector loads; DecodeBenchConnector fills in the same for all."""
    plain = arms.run(engine("", connector, tmp_path / "plain"), job(prompts, logprobs=2))
    served = engine(CONFIGS[name], connector, tmp_path)
    greedy = predicted(job(prompts), plain.tokens()) if name == "prediction" else job(prompts)
    first = arms.run(served, greedy)
    again = arms.run(served, Job(greedy.requests, torch_seed=1))
    for result in (first, again):
        assert not greedy_faults(result, plain)
        assert min(result.accepted, result.rejected) > 100
        assert not any(count for metric, count in result.metrics.items() if "proposer_errors" in metric)
    assert computed(again) < (100 * len(prompts) if connector == "ExampleConnector" else 10**9)


def computed(result: Result) -> float:
    print({k: v for k, v in result.metrics.items() if v and ("cache" in k or "prompt" in k)})
    return 0.0
