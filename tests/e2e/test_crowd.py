"""Many clients at once."""

import asyncio

import openai
import pytest

from tests.engine import texts
from tests.engine.exact import Reference
from tests.engine.greedy import assert_most_likely
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

NUM_STREAMS, NUM_SAMPLED, NUM_TOKENS = 16, 8, 64


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
