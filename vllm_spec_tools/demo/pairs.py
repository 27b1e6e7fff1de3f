"""Asks two servers the same, alternately, so that whatever else the machine does slows both."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from openai import DefaultHttpxClient, OpenAI

from vllm_spec_tools.bench.noise_gate import DISTURBING, NoiseGate
from vllm_spec_tools.demo.answers import Answer, ask
from vllm_spec_tools.engines.serving import Server

# A server's OpenMP threads spin this long after its last operator, on the other server's cores.
_SETTLE_SECONDS = 0.3


@dataclass(frozen=True)
class Pair:
    """Answers of both servers to the same prompt, one right after the other.

    Attributes:
        cpu_seconds: used meanwhile by both servers and this process, all cores together.
        others: cores that other processes used meanwhile; None is not known.
    """

    prompt: int
    plain: Answer
    drafted: Answer
    cpu_seconds: float = 0.0
    others: float | None = None

    @property
    def speedup(self) -> float:
        """Tokens per second with speculation over those without."""
        return self.drafted.rate / self.plain.rate

    @property
    def is_identical(self) -> bool:
        """Whether both answers are the same text."""
        return self.plain.text == self.drafted.text

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes worked meanwhile."""
        return (self.others or 0.0) > DISTURBING


class Servers(NamedTuple):
    """A server without and one with speculation; both serve the same model.

    They may be one: its requests without speculation then have `spec: off`.
    """

    plain: Server
    drafted: Server

    @property
    def each(self) -> list[Server]:
        """Every server once."""
        return list(dict.fromkeys(self))


def ask_in_pairs(
    servers: Servers,
    prompts: Sequence[str],
    rounds: int,
    max_tokens: int,
    gate: NoiseGate,
    show: Callable[[Pair], None],
    chat: bool = False,
) -> list[Pair]:
    """Measures each prompt `rounds` times, the servers taking turns at being first.

    Args:
        chat: whether prompts are a user's messages; else they are continued.

    Raises:
        OpenAIError: a request failed.
    """
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(_client(server)) for server in servers]
        is_one = len(servers.each) == 1

        def answer(which: int, prompt: str) -> Answer:
            drafts_off = is_one and which == 0
            return ask(clients[which], servers[which].model, prompt, max_tokens, chat=chat, drafts_off=drafts_off)

        def pair(index: int, order: Sequence[int]) -> Pair:
            before = _own_seconds(servers)
            answers: dict[int, Answer] = {}
            for which in order:
                time.sleep(_SETTLE_SECONDS)
                answers[which] = answer(which, prompts[index])
            return Pair(index, answers[0], answers[1], _own_seconds(servers) - before)

        # Warm-up: the first requests include lazy initialisation, and the policy learns what a step takes.
        for prompt in prompts[:2]:
            for which in (0, 1):
                answer(which, prompt)
        pairs = []
        for number in range(rounds):
            for index in range(len(prompts)):
                order = (0, 1) if (number + index) % 2 == 0 else (1, 0)
                measured, others = gate.run(partial(pair, index, order))
                pairs.append(replace(measured, others=others))
                show(pairs[-1])
    return pairs


def _client(server: Server) -> OpenAI:
    # No retry: a repeated request would be timed twice. No proxy: the server is local.
    http = DefaultHttpxClient(trust_env=False, timeout=600.0)
    return OpenAI(base_url=f"{server.base_url}/v1", api_key="not needed", max_retries=0, http_client=http)


def _own_seconds(servers: Servers) -> float:
    own = os.times()
    return own.user + own.system + sum(server.cpu_seconds() for server in servers.each)
