"""Drafting is switched off, capped and on in a server under load: requests go on, outputs stay the target's."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import yaml

from tests.e2e.conftest import OPTIONS, connect, served_model
from tests.engine import texts
from tests.engine.exact import Reference
from tests.engine.greedy import assert_most_likely
from tests.fixed_length import STOCK_DRAFT_MODEL
from vllm_spec_tools.engines.server_metrics import ServerMetrics
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

NUM_STREAMS, NUM_TOKENS, K = 4, 256, 4
OWN = "vllm_spec_plugin:"
FILE = {
    "proposer": {"method": "vllm", "config": json.loads(STOCK_DRAFT_MODEL)},
    "draft_length": {"policy": "fixed", "tokens": K},
}


def write(path: Path, **switch: object) -> None:
    """Replaces the file as an operator should: whole."""
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump({**FILE, "switch": switch}))
    new.replace(path)


def wait(is_there: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < end, "it has not come"
        time.sleep(0.05)


def verified(server: Server) -> list[float]:
    """Draft tokens that were verified, by position."""
    exposition = httpx.get(f"{server.base_url}/metrics", trust_env=False).text
    by_position = ServerMetrics.parse(exposition).by_label(f"{OWN}verified_tokens_total", "position")
    return [by_position.get(str(position), 0.0) for position in range(K)]


def growth(server: Server) -> list[bool]:
    """By position, whether drafts are verified there, while 200 more tokens are generated."""

    def generated() -> float:
        return server.metrics()["vllm:generation_tokens_total"]

    def pass_tokens(count: int) -> None:
        first = generated()
        wait(lambda: generated() >= first + count)

    # Counters of before the switch are on their way.
    pass_tokens(200)
    before = verified(server)
    pass_tokens(200)
    return [after > count for after, count in zip(verified(server), before, strict=True)]


def test_drafting_is_switched_while_requests_run(serve: Callable[..., Server], tmp_path: Path) -> None:
    path, log = tmp_path / "plugin.yaml", tmp_path / "log"
    write(path)
    reference = Reference()
    prompts = texts.sources(reference, NUM_STREAMS, 300)
    with serve(str(path), extra_args=OPTIONS, log_path=log) as server:
        client, is_over = connect(server), threading.Event()
        model = served_model(client)

        def ask(prompt: tuple[int, ...]) -> list[list[int]]:
            """Asks again and again; an error of a request is raised here."""
            outputs = []
            while not is_over.is_set():
                answer = client.completions.create(
                    model=model,
                    prompt=list(prompt),
                    max_tokens=NUM_TOKENS,
                    temperature=0,
                    extra_body={"ignore_eos": True, "return_token_ids": True},
                )
                outputs.append((answer.choices[0].model_extra or {})["token_ids"])
            return outputs

        def limit() -> float:
            return server.metrics()[f"{OWN}max_draft_tokens"]

        with ThreadPoolExecutor(NUM_STREAMS) as pool:
            streams = [pool.submit(ask, prompt) for prompt in prompts]
            try:
                assert limit() == K
                assert growth(server) == [True] * K
                write(path, spec="off")
                wait(lambda: limit() == 0)
                rests = server.metrics()[f"{OWN}drafter_rests_total"]
                assert growth(server) == [False] * K
                assert server.metrics()[f"{OWN}drafter_rests_total"] > rests
                write(path, spec_tokens=2)
                wait(lambda: limit() == 2)
                assert growth(server) == [True, True, False, False]
                write(path, spec_tokens=K + 1)
                wait(lambda: "switch.spec_tokens: got 5, but draft_length.tokens is 4" in log.read_text())
                assert limit() == 2
                write(path)
                wait(lambda: limit() == K)
                assert growth(server) == [True] * K
            finally:
                is_over.set()
            outputs = [stream.result() for stream in streams]
        metrics = server.metrics()
    lines = [line for line in log.read_text().splitlines() if "by the section switch" in line]
    assert [line.split("drafting is ")[1].split(" from")[0] for line in lines] == [
        "off",
        "on, with up to 2 draft tokens",
        "on, with up to 4 draft tokens",
    ]
    assert log.read_text().count("changed file not used") == 1
    assert metrics["vllm:request_success_total"] == sum(map(len, outputs)) > NUM_STREAMS
    assert {len(output) for own in outputs for output in own} == {NUM_TOKENS}
    # Near-ties aside, a prompt has one output, with drafts and without.
    different = [
        (prompt, list(output)) for prompt, own in zip(prompts, outputs, strict=True) for output in {*map(tuple, own)}
    ]
    assert len(different) < 2 * NUM_STREAMS
    assert_most_likely(reference, [prompt for prompt, _ in different], [output for _, output in different])
