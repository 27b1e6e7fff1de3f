"""Many clients at once."""

import asyncio
from pathlib import Path

import openai
import pytest

from tests.e2e import live_memory
from tests.engine import texts
from tests.engine.exact import Reference
from tests.engine.greedy import assert_most_likely
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

NUM_STREAMS, NUM_SAMPLED, NUM_TOKENS = 16, 8, 64
NUM_SHORT, AT_ONCE = 1000, 32


@pytest.fixture(scope="module")
def reference() -> Reference:
    """The target in transformers."""
    return Reference()


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


def test_16_greedy_streams_among_sampled_ones_are_the_targets(server: Server, model: str, reference: Reference) -> None:
    """Token for token, 24 streams at once."""
    prompts = texts.sources(reference, NUM_STREAMS, 400)

    async def crowd() -> list[list[int]]:
        async with openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="none") as client:
            greedy = [stream(client, model, prompt, max_tokens=NUM_TOKENS, temperature=0) for prompt in prompts]
            sampled = [
                stream(client, model, prompt, max_tokens=NUM_TOKENS, temperature=1) for prompt in prompts[:NUM_SAMPLED]
            ]
            outputs = await asyncio.gather(*greedy, *sampled)
            assert all(len(tokens) == NUM_TOKENS for tokens in outputs)
            return outputs[:NUM_STREAMS]

    assert_most_likely(reference, prompts, asyncio.run(crowd()))


@pytest.mark.full  # test_storm.py finds what is kept of requests that are gone.
def test_short_requests_leave_no_block_and_no_memory_behind(
    server: Server, method: str, model: str, reference: Reference, memory_folder: Path
) -> None:
    """KV blocks in use return to 0, and no process of the engine holds more afterwards.

    Caches fill first: as many other requests go before. A request may leave neither 1 kB of memory nor one Python
    object in four behind; resident memory, which fragments, grows by less than 2%. Objects are counted over two
    intervals: a leak shows in both, a cache of the web server that grows once does not.
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

    readings = []
    for _ in range(3):
        asyncio.run(run(NUM_SHORT))
        readings.append(live_memory.measure(memory_folder))
    metrics = server.metrics()
    assert metrics["vllm:kv_cache_usage_perc"] == 0
    assert metrics["vllm:num_requests_running"] == 0
    before, between, after = readings
    assert any("EngineCore" in name for name in before)
    assert any("Worker" in name for name in before)
    for name in before:
        print(name, before[name], between[name], after[name])
    for name, (resident_bytes, allocated_bytes, python_blocks) in before.items():
        assert resident_bytes > 100e6
        counts = python_blocks, between[name].python_blocks, after[name].python_blocks
        assert min(counts[1] - counts[0], counts[2] - counts[1]) < NUM_SHORT / 4, name
        assert after[name].allocated_bytes - allocated_bytes < 2 * 1000 * NUM_SHORT, name
        assert after[name].resident_bytes / resident_bytes < 1.02, name
