"""Token-only proposers in the scheduler's process, which has all that they need: token ids, and grammars."""

import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.compat.grammars import Grammars
from vllm_spec_plugin.compat.kv_cache import Request, RequestStatus
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.config.request_options import read_prediction
from vllm_spec_plugin.draft_plan import DraftPlan, length_of, longest
from vllm_spec_plugin.messages import DraftResult
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.policy.control import DraftLengthControl
from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.proposers.cascade import Cascade, Member
from vllm_spec_plugin.proposers.grammar.state import GrammarDraft
from vllm_spec_plugin.proposers.guard import GuardedProposer
from vllm_spec_plugin.proposers.registry import create_proposer
from vllm_spec_plugin.proposers.section import ProposerConfig
from vllm_spec_plugin.scheduling.eligibility import scope_of

_FIRST_CAPACITY = 1024

Room = Callable[[Request], int]
"""Returns the maximum tokens of a draft for a request."""


class TokenOnlyDrafts:
    """Drafts certain tokens from requests' own texts and grammars, and from finished texts of their scope.

    Attributes:
        grammar: index of the proposer that drafts from grammars; None without one.
    """

    def __init__(
        self,
        configs: Sequence[ProposerConfig],
        config: PluginConfig,
        vocab_size: int,
        grammars: Grammars,
    ) -> None:
        """Builds the proposers.

        Args:
            configs: the first proposers of the configuration, each of which `is_token_only`.
            config: the plugin's configuration.
            vocab_size: size of the target's vocabulary.
            grammars: finds the requests' grammars.
        """
        self.grammar = next((i for i, each in enumerate(configs) if each.uses_grammar), None)
        self._grammars = None if self.grammar is None else grammars
        self._configs, tokens = configs, config.draft_length.tokens
        self._has_others = len(configs) < len(config.proposers)
        self._shared_scope, self._is_exact = config.text_scope, config.verification.lenience == 1
        self._counters, self._sources = CountersByMethod(), dict[str, int]()
        # Texts of requests that were drafted for, and how much of each buffer is used.
        self._texts: dict[str, tuple[npt.NDArray[np.int32], int]] = {}
        self._uniforms = np.zeros(tokens)
        proposers = [
            create_proposer(each, tokens, vocab_size, grammars.tokenizer if each.uses_grammar else None)
            for each in configs
        ]
        # Continues others' drafts, and learns.
        self._continuing: Any = None if self.grammar is None else proposers[self.grammar]
        # Kinds of the grammar's draft tokens that wait to be verified.
        self._kinds: dict[str, Sequence[int]] = {}
        self._proposers = [
            GuardedProposer(proposer, vocab_size, functools.partial(self._count_error, each.method), each.method)
            for proposer, each in zip(proposers, configs, strict=True)
        ]
        self._cascade = Cascade([Member(proposer) for proposer in self._proposers], self._note)

    def _views(
        self, draft_plans: Mapping[str, DraftPlan], requests: Mapping[str, Request], room: Room, least: float
    ) -> list[RequestView]:
        """Returns views of the requests to draft for, or whose drafts a grammar may continue; see `draft`."""
        views, num_here = [], len(self._configs)
        for request_id, planned in draft_plans.items():
            own = planned
            if self._has_others:
                own = tuple(itertools.takewhile(lambda each: each[0] < num_here, planned))
            request = requests.get(request_id)
            if request is None or request.status != RequestStatus.RUNNING:
                continue
            if not own and not (length_of(planned, self.grammar) and self._made_elsewhere(request)):
                continue
            if request.is_prefill_chunk or not request.num_output_tokens:
                continue
            # With pipeline stages a step of the request may be in flight.
            if request.num_computed_tokens >= request.num_tokens or (most := room(request)) < 1:
                continue
            params, length = request.sampling_params, min(longest(planned), most)
            assert params is not None, "it would have no draft plan"
            views.append(
                RequestView(
                    request_id=request_id,
                    token_ids=self._text(request_id, request.all_token_ids),
                    num_draft_tokens=length,
                    uniforms=self._uniforms[:length],
                    # Of drafts that are made here, verification takes no q.
                    point_mass=True,
                    depth=length,
                    scope=self._scope(request.cache_salt, is_seeded=params.seed is not None),
                    draft_plan=own,
                    num_prompt_tokens=request.num_prompt_tokens,
                    prediction=read_prediction(params.extra_args),
                    grammar=self._grammars.of(request) if self._grammars is not None else None,
                    least_acceptance=least,
                )
            )
        return views

    def _scope(self, cache_salt: str | None, *, is_seeded: bool) -> str | None:
        """See `RequestView.scope`."""
        if self._shared_scope is None or (is_seeded and not self._is_exact):
            return None
        return scope_of(cache_salt, self._shared_scope)

    def draft(
        self,
        draft_plans: Mapping[str, DraftPlan],
        requests: Mapping[str, Request],
        room: Room,
        control: DraftLengthControl,
    ) -> tuple[dict[str, list[int]], DraftResult]:
        """Drafts for the step to come, for running requests with output tokens and room, and no step in flight.

        What is planned for a drafter in vLLM's runner, and after it, is left to that; grammars continue its drafts.

        Args:
            draft_plans: by request id.
            requests: vLLM's `Request` of each request that has not ended.
            room: returns the maximum tokens of a draft for a request.
            control: the policy.

        Returns:
            By request with a draft that is made or continued here, its tokens; and what is recorded of them.
        """
        views = self._views(draft_plans, requests, room, control.least_acceptance)
        found, continued = dict[str, list[int]](), dict[str, int]()
        for view, draft in zip(views, self._cascade.propose(views), strict=True):
            request_id, token_ids = view.request_id, draft.token_ids
            if draft.kinds:
                self._kinds[request_id] = draft.kinds
            elif view.grammar is not None and (made := token_ids or self._made_elsewhere(requests[request_id])):
                most = length_of(draft_plans[request_id], self.grammar)
                # The last proposer is the drafter in vLLM's runner.
                reached = self._reached(control, self._sources.get(request_id, -1), len(made))
                kept, added = self._continued(view, made, most, reached)
                if token_ids or added:
                    token_ids, continued[request_id] = [*kept, *added], len(kept)
            if token_ids:
                found[request_id] = token_ids
        counters, sources = self._counters, self._sources
        self._counters, self._sources = CountersByMethod(), {}
        return found, DraftResult(counters, sources, continued)

    def _made_elsewhere(self, request: Request) -> Sequence[int]:
        """Returns the draft of the drafter in vLLM's runner, if its tokens are known, as they are with grammars."""
        made = request.spec_token_ids if self._has_others else ()
        return made if made and made[0] >= 0 else ()

    def _reached(self, control: DraftLengthControl, source: int, count: int) -> float:
        """Returns the probability that a draft is accepted whole, if that matters for what may follow it."""
        acceptance = control.acceptance if control.least_acceptance else ()
        return math.prod(acceptance[source][:count]) if acceptance else 1.0

    def _continued(
        self, view: RequestView, token_ids: Sequence[int], most: int, reached: float
    ) -> tuple[Sequence[int], list[int]]:
        """Continues another proposer's draft by the grammar; see `GrammarProposer.continued`."""
        assert self.grammar is not None, "without it views have no grammars"
        parts: list[tuple[list[int], GrammarDraft]] = []
        guard, config = self._proposers[self.grammar], self._configs[self.grammar]
        begin, grammar = time.perf_counter(), self._continuing
        if not guard.attempt(lambda: parts.append(grammar.continued(view, token_ids, most, reached)), "continuing"):
            return token_ids, []
        [(kept, (added, self._kinds[view.request_id]))] = parts
        self._counters.of(config.method).count_drafts([len(added)], time.perf_counter() - begin)
        return kept, added

    def verified(self, request_id: str, drafted: int, accepted: int) -> Sequence[int]:
        """Learns from the outcome of a grammar's draft, or of its part of one; returns the kinds of its tokens."""
        kinds = self._kinds.pop(request_id, ())[:drafted]
        self._continuing.verified(request_id, kinds, accepted)
        return kinds

    def finish(self, request_id: str) -> None:
        """Drops the state of a request that has ended; its text may serve later ones of its scope."""
        if self._texts.pop(request_id, None) is not None:
            self._kinds.pop(request_id, None)
            for proposer in self._proposers:
                proposer.finish(request_id)

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
