"""Draft limits of a request: its options, and the room until the end of its text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_spec_plugin.config.request_options import RequestOptions
from vllm_spec_plugin.proposers.section import ProposerConfig


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """Maximum draft tokens of a request, by the length of its text.

    Attributes:
        usual: maximum draft tokens per proposer, far from the end of the text; 0 is none.
        usual_until: longest text for which `usual` holds, in tokens.
        max_model_len: maximum tokens of a request.
        end: tokens of the text with all output tokens of the request.
        drafts_trees: per proposer, whether drafts may have branches.
        least_end: tokens of the text with the minimum of output tokens, which no draft may reach; 0 without one.
        own: `usual` without the limit of `capped`.
    """

    usual: tuple[int, ...]
    usual_until: int
    max_model_len: int
    end: int
    drafts_trees: tuple[bool, ...]
    least_end: int = 0
    own: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        end: int,
        options: RequestOptions,
        max_tokens: int,
        proposers: Sequence[ProposerConfig],
        max_model_len: int,
        least_end: int = 0,
    ) -> "DraftLimits":
        """Combines a request's options with the configuration.

        Args:
            end: tokens of the text with all output tokens of the request.
            options: the request's options.
            max_tokens: the configuration's maximum draft length, in tokens.
            proposers: proposers of the configuration.
            max_model_len: maximum tokens of a request.
            least_end: see the attribute.
        """
        max_tokens = max_tokens if options.max_tokens is None else min(options.max_tokens, max_tokens)
        usual = tuple(max_tokens if options.allows(proposer) else 0 for proposer in proposers)
        return cls(
            usual,
            min(max_model_len, end) - 2 - max_tokens,
            max_model_len,
            end,
            tuple(proposer.drafts_trees for proposer in proposers),
            least_end,
            usual,
        )

    def capped(self, max_tokens: int) -> "DraftLimits":
        """Returns the limits with this maximum of draft tokens in place of an earlier one."""
        return replace(self, usual=tuple([min(limit, max_tokens) for limit in self.own]))

    def at(self, num_tokens: int, ahead: int = 1, most_ahead: int = 1) -> tuple[int, ...] | None:
        """Returns limits per proposer for drafts; None if all are 0. Verification adds a token after the drafts.

        Args:
            num_tokens: tokens of the text.
            ahead: minimum of tokens that come between it and the drafts, at most 1: a step adds one.
            most_ahead: maximum of these tokens, if the text is shorter than `least_end`.
        """
        if self.least_end <= num_tokens <= self.usual_until:
            return self.usual
        room, depth = self.max_model_len - num_tokens - ahead - 1, self.end - num_tokens - ahead - 1
        if num_tokens < self.least_end:
            room = min(room, self.least_end - num_tokens - most_ahead - 1)
        if room <= 0 or depth <= 0:
            return None
        pairs = zip(self.usual, self.drafts_trees, strict=True)
        return tuple(min(limit, room) if is_tree else min(limit, room, depth) for limit, is_tree in pairs)
