"""Drafts from texts in the scheduler's process: token ids are all that suffixes, n-grams and predictions need."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.compat.kv_cache import Request, RequestStatus
from vllm_spec_plugin.config.request_options import read_prediction
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.cascade import Cascade, Member
from vllm_spec_plugin.proposers.guard import GuardedProposer
from vllm_spec_plugin.proposers.registry import create_proposer
from vllm_spec_plugin.proposers.section import ProposerConfig
from vllm_spec_plugin.scheduling.eligibility import SharedScope, scope_of
from vllm_spec_plugin.turns import Turns, longest

_FIRST_CAPACITY = 1024


class TextRequest(NamedTuple):
    """A request to draft for.

    Attributes:
        request_id: vLLM's id of the request.
        token_ids: prompt and output so far.
        num_prompt_tokens: number of prompt tokens in `token_ids`.
        turns: proposers to try, with draft lengths; at least one.
        room: maximum draft tokens before the end of the text, at least 1.
        scope: scope of the request's text; None is private.
        prediction: the client's predicted output, as token ids; None without one.
    """

    request_id: str
    token_ids: Sequence[int]
    num_prompt_tokens: int
    turns: Turns
    room: int
    scope: str | None = None
    prediction: Sequence[int] | None = None


def text_requests(
    turns: Mapping[str, Turns], requests: Mapping[str, Request], max_model_len: int, shared_scope: SharedScope | None
) -> list[TextRequest]:
    """Selects the requests to draft for: running, with output tokens, below their length limit, with no step in flight.

    Args:
        turns: turns by request id.
        requests: vLLM's `Request` of each request that has not ended.
        max_model_len: maximum tokens of a request.
        shared_scope: see `scope_of`; None if no proposer drafts from finished texts.
    """
    found = []
    for request_id, own in turns.items():
        request = requests.get(request_id)
        if request is None or request.status != RequestStatus.RUNNING:
            continue
        if request.is_prefill_chunk or not request.num_output_tokens:
            continue
        # With pipeline stages a step of the request may be in flight.
        if request.num_computed_tokens >= request.num_tokens:
            continue
        assert request.sampling_params is not None, "it would have no turns"
        # Verification adds a token after the drafts.
        room = min(request.max_tokens - request.num_output_tokens, max_model_len - request.num_tokens) - 1
        if room < 1:
            continue
        scope = None if shared_scope is None else scope_of(request.cache_salt, shared_scope)
        prediction = read_prediction(request.sampling_params.extra_args)
        text = request.all_token_ids, request.num_prompt_tokens
        found.append(TextRequest(request_id, *text, own, room, scope, prediction))
    return found


class TextDrafts:
    """Drafts certain tokens from requests' own texts, and from finished ones of their scope."""

    def __init__(self, configs: Sequence[ProposerConfig], tokens: int, vocab_size: int) -> None:
        """Builds the configured proposers.

        Args:
            configs: proposers, each of which `drafts_from_text`.
            tokens: maximum draft tokens of a request.
            vocab_size: size of the target's vocabulary.
        """
        self._configs = configs
        self._counters, self._sources = CountersByMethod(), dict[str, int]()
        # Texts of requests that were drafted for, and how much of each buffer is used.
        self._texts: dict[str, tuple[npt.NDArray[np.int32], int]] = {}
        self._uniforms = np.zeros(tokens)
        self._proposers = [
            GuardedProposer(
                create_proposer(each, tokens, vocab_size, None),
                vocab_size,
                functools.partial(self._count_error, each.method),
                each.method,
            )
            for each in self._configs
        ]
        self._cascade = Cascade([Member(proposer) for proposer in self._proposers], self._note)

    def draft(self, requests: Sequence[TextRequest]) -> tuple[dict[str, list[int]], CountersByMethod, dict[str, int]]:
        """Drafts for the step to come.

        Returns:
            By request with a draft its tokens; counts of drafting; and by request with a draft the index of its
            proposer.
        """
        drafts = self._cascade.propose([self._view(request) for request in requests])
        counters, sources = self._counters, self._sources
        self._counters, self._sources = CountersByMethod(), {}
        pairs = zip(requests, drafts, strict=True)
        return {request.request_id: own.token_ids for request, own in pairs if own.token_ids}, counters, sources

    def finish(self, request_id: str) -> None:
        """Drops the state of a request that has ended; its text may serve later ones of its scope."""
        if self._texts.pop(request_id, None) is not None:
            for proposer in self._proposers:
                proposer.finish(request_id)

    def _view(self, request: TextRequest) -> RequestView:
        length = min(longest(request.turns), request.room)
        return RequestView(
            request_id=request.request_id,
            token_ids=self._text(request.request_id, request.token_ids),
            num_draft_tokens=length,
            uniforms=self._uniforms[:length],
            # Verification by vLLM takes no q from here.
            point_mass=True,
            depth=length,
            scope=request.scope,
            turns=request.turns,
            num_prompt_tokens=request.num_prompt_tokens,
            prediction=request.prediction,
        )

    def _text(self, request_id: str, token_ids: Sequence[int]) -> npt.NDArray[np.int32]:
        """Returns the request's text as a read-only array; only tokens since the last call are copied."""
        length = len(token_ids)
        buffer, used = self._texts.get(request_id, (np.empty(0, np.int32), 0))
        if length > len(buffer):
            larger = np.empty(max(2 * length, _FIRST_CAPACITY), np.int32)
            larger[:used] = buffer[:used]
            buffer = larger
        buffer[used:length] = token_ids[used:length]
        self._texts[request_id] = buffer, length
        text = buffer[:length]
        text.flags.writeable = False
        return text

    def _note(self, index: int, requests: Sequence[RequestView], drafts: Sequence[Draft], seconds: float) -> None:
        """Counts a proposer's drafts and time."""
        self._counters.of(self._configs[index].method).count_drafts([len(draft.token_ids) for draft in drafts], seconds)
        self._sources |= {
            request.request_id: index for request, draft in zip(requests, drafts, strict=True) if draft.token_ids
        }

    def _count_error(self, method: str, reason: str) -> None:
        self._counters.of(method).count_error(reason)
