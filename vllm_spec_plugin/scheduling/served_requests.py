"""Requests that may have drafts, and the limits of these: the one place that bounds draft lengths before a plan."""

from collections.abc import KeysView

from vllm_spec_plugin.compat.grammars import refuses_tokens_after_end
from vllm_spec_plugin.compat.kv_cache import Request
from vllm_spec_plugin.compat.scheduler import SchedulerOutput
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.config.request_options import read_options
from vllm_spec_plugin.metrics.counters import GRAMMAR
from vllm_spec_plugin.scheduling.draft_limits import DraftLimits
from vllm_spec_plugin.scheduling.eligibility import is_cut_by_value, why_without_drafts


class ServedRequests:
    """Keeps the limits of each request that may have drafts, while it lives.

    Attributes:
        max_tokens: maximum draft tokens of any request, by the operator's switch; 0 is off.
    """

    def __init__(
        self, config: PluginConfig, max_model_len: int, *, bounds_min_tokens: bool, samples_drafts: bool
    ) -> None:
        """Starts without requests.

        Args:
            config: the plugin's configuration.
            max_model_len: maximum tokens of a request.
            bounds_min_tokens: whether no draft may reach the `min_tokens` of its request.
            samples_drafts: whether vLLM samples drafts of requests that sample.
        """
        self._proposers, self._most = config.proposers, config.draft_length.tokens
        self._default, self.max_tokens = config.requests.max_tokens, config.max_draft_tokens
        self._max_model_len = max_model_len
        self._bounds_min_tokens, self._samples_drafts = bounds_min_tokens, samples_drafts
        self._limits: dict[str, DraftLimits] = {}

    @property
    def ids(self) -> KeysView[str]:
        """The requests' ids."""
        return self._limits.keys()

    def add(self, request: Request) -> str | None:
        """Reads a new request's limits.

        Returns:
            Why it gets no drafts whatever its options are, one of `WITHOUT_DRAFTS`; else None.
        """
        params = request.sampling_params
        budget = None if params is None else params.thinking_token_budget
        if reason := why_without_drafts(params is not None, budget, request.resumable, request.prompt_embeds):
            return reason
        assert params is not None, "it would have a reason"
        if refuses_tokens_after_end(params):
            return GRAMMAR
        if self._samples_drafts and is_cut_by_value(params.structured_outputs is not None, params.temperature):
            return GRAMMAR
        first = request.num_prompt_tokens
        limits = DraftLimits.of(
            first + request.max_tokens,
            read_options(params.extra_args, has_grammar=params.structured_outputs is not None, default=self._default),
            self._most,
            self._proposers,
            self._max_model_len,
            first + params.min_tokens if self._bounds_min_tokens and params.min_tokens else 0,
        )
        if any(limits.usual):
            self._limits[request.request_id] = limits.capped(self.max_tokens)
        return None

    def cap(self, max_tokens: int) -> None:
        """Sets the maximum draft tokens of all requests, those that run and those to come; 0 is no drafts."""
        self.max_tokens = max_tokens
        self._limits = {request_id: limits.capped(max_tokens) for request_id, limits in self._limits.items()}

    def forget(self, request_id: str) -> bool:
        """Drops a request that ended; returns whether it was here."""
        return self._limits.pop(request_id, None) is not None

    def may_draft(self, request_id: str, proposer: int) -> bool:
        """Whether a request may have drafts of a proposer."""
        limits = self._limits.get(request_id)
        return limits is not None and limits.usual[proposer] > 0

    def limits(self, request: Request, output: SchedulerOutput) -> tuple[int, ...] | None:
        """Returns limits per proposer for the drafts after a step that vLLM has planned; None if all are 0."""
        own = self._limits.get(request.request_id)
        if own is None:
            return None
        num_tokens = request.num_tokens
        if own.least_end <= num_tokens <= own.usual_until:
            return own.usual
        drafts = output.scheduled_spec_decode_tokens.get(request.request_id, ())
        return own.at(num_tokens, most_ahead=request.num_output_placeholders or 1 + len(drafts))

    def room(self, request: Request) -> int:
        """Returns the maximum tokens of a draft that follows a request's text as it is."""
        own = self._limits.get(request.request_id)
        return 0 if own is None else max(own.at(request.num_tokens, ahead=0, most_ahead=0) or (0,))
