"""Clients of a served engine, each in a thread: some that stay to the end, some that leave, one that makes no sense."""

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import httpx

from loadtests.acceptance.chaos.agreement import Answer
from loadtests.acceptance.chaos.moments import drawn_leaving
from loadtests.acceptance.chaos.refusals import BadRequest
from loadtests.stream.client import COMPLETIONS, StreamingClient
from loadtests.stream.timing import ErrorKind, StreamRecord

NUM_TOKENS = 96
_LEAVERS = 6
_LEAVER_TOKENS = 400
_REFUSED_PAUSE = 0.1
_PATIENCE = 120.0


def survivor_body(model: str, prompt: str) -> dict[str, Any]:
    """What a client asks that stays: so many tokens, exactly, at temperature 0."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": NUM_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }


class Crowd:
    """All of them, as a context manager: while it lasts they ask, again and again.

    Attributes:
        answers: of those that stay.
        left_early: how many left before anything had come.
        left_midway: how many left within their stream.
        refusals: names of bad requests, and the HTTP status of the answer to each; 0 for none.
    """

    def __init__(self, base_url: str, model: str, prompts: Sequence[str], bad: Sequence[BadRequest], seed: int) -> None:
        """Asks nothing yet.

        Args:
            base_url: of the server.
            model: its name.
            prompts: one client stays for each of them.
            bad: requests that are to be refused.
            seed: of what is random.
        """
        self.answers: list[Answer] = []
        self.left_early = self.left_midway = 0
        self.refusals: list[tuple[str, int]] = []
        self._base_url, self._model, self._prompts, self._bad = base_url, model, prompts, bad
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        works: list[Callable[[], None]] = [
            self._make_no_sense,
            *(partial(self._stay, number) for number in range(len(prompts))),
            *(partial(self._leave, random.Random(f"{seed} {number}")) for number in range(_LEAVERS)),
        ]
        # Daemons: an interrupted test does not wait for answers.
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Lets them finish what they are at, but after an error."""
        self._is_over.set()
        for thread in self._threads if kind is None else ():
            thread.join(_PATIENCE)

    def _stay(self, number: int) -> None:
        client = StreamingClient(self._base_url, timeout=_PATIENCE)
        while not self._is_over.is_set():
            record = client.ask(COMPLETIONS, survivor_body(self._model, self._prompts[number]))
            error = "" if record.error is None else f"{record.error}: {record.message}"
            self.answers.append(Answer(number, tokens_of(record), error))
        client.close()

    def _leave(self, rng: random.Random) -> None:
        while not self._is_over.is_set():
            leaving = drawn_leaving(rng)
            client = StreamingClient(self._base_url, timeout=leaving.patience)
            body = {
                "model": self._model,
                "prompt": rng.choice(self._prompts),
                "max_tokens": _LEAVER_TOKENS,
                "temperature": rng.choice((0.0, 0.8)),
                "ignore_eos": True,
            }
            record = client.ask(COMPLETIONS, body, leaving.pieces)
            client.close()
            with self._lock:
                if record.error is ErrorKind.TIMEOUT and not record.chunks:
                    self.left_early += 1
                elif record.error is ErrorKind.CUT:
                    self.left_midway += 1

    def _make_no_sense(self) -> None:
        with httpx.Client(base_url=self._base_url, trust_env=False, timeout=_PATIENCE) as client:
            while not self._is_over.is_set():
                for bad in self._bad:
                    self.refusals.append((bad.name, _status(client, bad)))
                    if self._is_over.wait(_REFUSED_PAUSE):
                        break


def _status(client: httpx.Client, bad: BadRequest) -> int:
    try:
        if isinstance(bad.body, bytes):
            headers = {"Content-Type": "application/json"}
            return client.post(bad.path, content=bad.body, headers=headers).status_code
        return client.post(bad.path, json=bad.body).status_code
    except httpx.HTTPError:
        return 0


def tokens_of(record: StreamRecord) -> tuple[int, ...]:
    """The token ids of a stream that tells them."""
    return tuple(token for _, chunk in record.chunks for token in chunk.token_ids or ())
