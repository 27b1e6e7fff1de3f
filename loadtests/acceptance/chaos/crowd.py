"""Clients of a served engine, each in a thread: some stay, some disconnect, one sends invalid requests."""

import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

import httpx

from loadtests.acceptance.chaos.agreement import Answer, greedy_body
from loadtests.acceptance.chaos.bad_requests import BadRequest
from loadtests.stream.client import COMPLETIONS, StreamingClient
from loadtests.stream.timing import ErrorKind, StreamRecord

_LEAVERS = 6
_LEAVER_TOKENS = 400
# Share of clients that leave before the first token, and mean pieces that the others read.
_EARLY, _MEAN_PIECES = 0.25, 12.0
_REFUSED_PAUSE = 0.1
_PATIENCE = 120.0


def _drawn_leaving(rng: random.Random) -> tuple[int | None, float]:
    """Draws when a client disconnects: within the queue or the prompt, or anywhere in the output.

    Returns:
        Number of pieces of the stream after which it does, None before any; and the most seconds between pieces.
    """
    if rng.random() < _EARLY:
        return None, rng.uniform(0.005, 0.2)
    return 1 + int(rng.expovariate(1 / _MEAN_PIECES)), _PATIENCE


class Crowd:
    """Clients that send requests repeatedly, as a context manager.

    Attributes:
        left_early: number of clients that left before the first token.
        refusals: names of invalid requests, and the HTTP status of each response; 0 for none.
    """

    def __init__(self, base_url: str, model: str, prompts: Sequence[str], bad: Sequence[BadRequest], seed: int) -> None:
        """Creates the threads.

        Args:
            prompts: prompts, each with one client that stays.
        """
        self.answers: list[Answer] = []
        self.left_early = self.left_midway = 0
        self.refusals: list[tuple[str, int]] = []
        self._base_url, self._model, self._prompts, self._bad = base_url, model, prompts, bad
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        works: list[Callable[[], None]] = [
            self._send_invalid,
            *(partial(self._stay, number) for number in range(len(prompts))),
            *(partial(self._leave, random.Random(f"{seed} {number}")) for number in range(_LEAVERS)),
        ]
        # Daemons: an interrupted test does not wait for responses.
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Waits for the open requests, unless an error ended the test."""
        self._is_over.set()
        for thread in self._threads if kind is None else ():
            thread.join(_PATIENCE)

    def _stay(self, number: int) -> None:
        client = StreamingClient(self._base_url, timeout=_PATIENCE)
        while not self._is_over.is_set():
            record = client.ask(COMPLETIONS, greedy_body(self._model, self._prompts[number]))
            error = "" if record.error is None else f"{record.error}: {record.message}"
            self.answers.append(Answer(number, tokens_of(record), error))
        client.close()

    def _leave(self, rng: random.Random) -> None:
        while not self._is_over.is_set():
            num_pieces, patience = _drawn_leaving(rng)
            client = StreamingClient(self._base_url, timeout=patience)
            body = {
                "model": self._model,
                "prompt": rng.choice(self._prompts),
                "max_tokens": _LEAVER_TOKENS,
                "temperature": rng.choice((0.0, 0.8)),
                "ignore_eos": True,
            }
            record = client.ask(COMPLETIONS, body, num_pieces)
            client.close()
            with self._lock:
                if record.error is ErrorKind.TIMEOUT and not record.chunks:
                    self.left_early += 1
                elif record.error is ErrorKind.CUT:
                    self.left_midway += 1

    def _send_invalid(self) -> None:
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
    """The token ids of a stream that reports them."""
    return tuple(token for _, chunk in record.chunks for token in chunk.token_ids or ())
