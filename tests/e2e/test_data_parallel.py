"""Two replicas behind one endpoint."""

import asyncio
import os

import httpx
import openai
import pytest

from tests.engine import texts
from tests.engine.exact import Reference
from tests.engine.greedy import assert_most_likely
from tests.fixed_length import fixed_length
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.server_metrics import ServerMetrics
from vllm_spec_tools.engines.serving import Server

# Replicas share the endpoint only: test_serve.py has one.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.whole_machine,
    pytest.mark.full,
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two replicas need two cores"),
]
NUM_TOKENS = 32
OPTIONS = ("--data-parallel-size", "2", "--max-model-len", "512", "--num-gpu-blocks-override", "64", "--enforce-eager")
# Set at all, the last one lets replicas share a memory node: vLLM 0.33 gives replica i none but node i.
ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "0|1", "OMP_NUM_THREADS": "1", "VLLM_CPU_SIM_MULTI_NUMA": "0"}


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


def counted(base_url: str, name: str, label: str) -> dict[str, float]:
    """A counter of the server's, summed by one of its labels."""
    return ServerMetrics.parse(httpx.get(f"{base_url}/metrics").text).by_label(name, label)


def test_both_replicas_serve_the_targets_greedy_outputs_and_are_counted_once() -> None:
    """Every token is the target's likeliest one, and accepted drafts are as many as vLLM counts over both engines."""
    reference = Reference()
    prompts = [prompt for prompt in texts.sources(reference, 24, 300) if len(prompt) > 1]
    config = fixed_length("cascade", 4)
    with Server(model_path("target"), config, extra_args=OPTIONS, environment=ENVIRONMENT) as server:

        async def all_answers() -> list[list[int]]:
            async with openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0) as client:
                asked = (
                    stream(client, server.model, prompt, max_tokens=NUM_TOKENS, temperature=0) for prompt in prompts
                )
                return await asyncio.gather(*asked)

        outputs = asyncio.run(all_answers())
        ended = counted(server.base_url, "vllm:request_success_total", "engine")
        accepted = counted(server.base_url, "vllm:spec_decode_num_accepted_tokens_total", "engine")
        ours = counted(server.base_url, "vllm_spec_plugin:accepted_tokens_total", "")
        acceptance = counted(server.base_url, "vllm_spec_plugin:estimated_acceptance", "pid")
    assert [len(output) for output in outputs] == [NUM_TOKENS] * len(prompts)
    assert_most_likely(reference, prompts, outputs)
    assert min(ended["0"], ended["1"]) > 0
    assert min(accepted["0"], accepted["1"]) > 0
    assert sum(ours.values()) == sum(accepted.values())
    assert set(acceptance) <= {""}
