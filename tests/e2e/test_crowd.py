"""Many clients at once."""

import asyncio
from collections.abc import Iterator

import openai
import psutil
import pytest

from tests.engine import texts
from tests.engine.arms import Arms, Engine
from tests.engine.exact import Reference
from tests.engine.greedy import assert_same_token_ids, greedy_job
from vllm_spec_plugin.serving import Server

pytestmark = pytest.mark.e2e

NUM_STREAMS, NUM_SAMPLED, NUM_TOKENS = 16, 8, 64
NUM_SHORT, AT_ONCE = 2000, 32
# Memory is read after each so many of them.
PART = 500


@pytest.fixture(scope="module")
def reference() -> Reference:
    """The target in transformers."""
    return Reference()


@pytest.fixture(scope="package")
def arms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arms]:
    """An engine without speculation to compare with."""
    arms = Arms(tmp_path_factory.mktemp("arms"))
    yield arms
    arms.stop()


async def stream(client: openai.AsyncOpenAI, model: str, prompt: tuple[int, ...], **options: object) -> list[int]:
    """The token ids of a streamed completion."""
    chunks = await client.completions.create(
        model=model,
        prompt=list(prompt),
        stream=True,
        extra_body={"ignore_eos": True, "return_token_ids": True},
        **options,
    )  # type: ignore[call-overload]
    return [token async for chunk in chunks for token in chunk.choices[0].token_ids or ()]


def test_16_greedy_streams_among_sampled_ones_are_those_without_speculation(
    server: Server, model: str, reference: Reference, arms: Arms
) -> None:
    """Token for token, 24 streams at once."""
    prompts = texts.sources(reference, NUM_STREAMS, 400)
    plain = arms.run(Engine(), greedy_job(prompts, NUM_TOKENS)).tokens()

    async def crowd() -> list[list[int]]:
        async with openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="none") as client:
            greedy = [stream(client, model, prompt, max_tokens=NUM_TOKENS, temperature=0) for prompt in prompts]
            sampled = [
                stream(client, model, prompt, max_tokens=NUM_TOKENS, temperature=1) for prompt in prompts[:NUM_SAMPLED]
            ]
            outputs = await asyncio.gather(*greedy, *sampled)
            assert all(len(tokens) == NUM_TOKENS for tokens in outputs)
            return outputs[:NUM_STREAMS]

    assert_same_token_ids(reference, prompts, asyncio.run(crowd()), plain)


def worker_bytes() -> int:
    """Resident memory of the process that runs the models."""
    children = psutil.Process().children(recursive=True)
    return sum(child.memory_info().rss for child in children if child.name() == "VLLM::Worker")


def test_2000_short_requests_leave_no_block_and_no_memory_behind(
    server: Server, method: str, model: str, reference: Reference
) -> None:
    """KV blocks in use return to 0; the worker's memory grows by less than 2%.

    Allocators and caches grow for a while: 2000 other requests go before. Even then they take and give back
    some 3%: what is compared is the most that was held before with the least in the last two readings.
    """
    if method != "cascade":
        pytest.skip("a minute of work, and nothing of its own in the KV cache")
    prompts = texts.sources(reference, 50, 100)

    async def run(count: int) -> None:
        gate = asyncio.Semaphore(AT_ONCE)
        async with openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="none") as client:

            async def one(i: int) -> None:
                async with gate:
                    await client.completions.create(
                        model=model, prompt=list(prompts[i % len(prompts)]), max_tokens=6, temperature=i % 2
                    )

            await asyncio.gather(*(one(i) for i in range(count)))

    def readings() -> Iterator[int]:
        for _ in range(NUM_SHORT // PART):
            asyncio.run(run(PART))
            yield worker_bytes()

    before = max(readings())
    grown = min(list(readings())[-2:]) / before - 1
    metrics = server.metrics()
    assert metrics["vllm:kv_cache_usage_perc"] == 0
    assert metrics["vllm:num_requests_running"] == 0
    print(f"{before / 1e6:.0f} MB, {grown:+.2%}")
    assert before > 100e6
    assert grown < 0.02
