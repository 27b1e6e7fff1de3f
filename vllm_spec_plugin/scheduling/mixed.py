"""Texts before one of vLLM's drafters, for each request and step: a draft from a text takes the place of the drafter's.

The drafter drafts at a step's end, before the scheduler knows the step's tokens, and with them what texts have. Its
draft stands wherever they have none.
"""

from typing import Any

from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.scheduler import DraftTokenIds, VllmConfig
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.policy.control import Drafting
from vllm_spec_plugin.scheduling.native import NativeScheduler
from vllm_spec_plugin.scheduling.text_drafts import TextDrafts, text_requests
from vllm_spec_plugin.turns import Turns, length_of


class MixedScheduler(NativeScheduler):
    """Drafts from texts before it plans a step; the last proposer of the configuration is vLLM's drafter."""

    def __init__(self, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        config = config_in(vllm_config.additional_config)
        self._members = config.proposers[: self._adapter.native]
        self._texts = TextDrafts(self._members, config.draft_length.tokens, vllm_config.model_config.get_vocab_size())

    def _begin(self) -> None:
        """Begins a step with drafts from texts, of requests whose turns have texts before the drafter."""
        asked = {name: own for name, turns in self._adapter.latest.items() if (own := self._before_drafter(turns))}
        super()._begin()
        if not asked:
            return
        requests = text_requests(asked, self.requests, self.max_model_len, self._shared_scope)
        found, counters, sources = self._texts.draft(requests)
        if found:
            super(NativeScheduler, self).update_draft_token_ids(DraftTokenIds(list(found), list(found.values())))
        drafting = []
        for member, proposer in enumerate(self._members):
            did, longest = counters.of(proposer.method), max(length_of(own, member) for own in asked.values())
            drafting.append(Drafting(longest, did.draft_tokens, 0, did.proposer_seconds))
        self._adapter.drafted_from_texts(sources, tuple(drafting))
        self._counters.add(counters)

    def _before_drafter(self, turns: Turns) -> Turns:
        """Returns the turns of texts that are tried before the drafter."""
        members = [member for member, _ in turns]
        return turns[: members.index(self._adapter.native)] if self._adapter.native in members else turns

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self._texts.finish(request.request_id)
        return super()._free_request(request, *args, **kwargs)
