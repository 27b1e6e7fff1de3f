"""Draft limits of a request: its options, and the room until the end of its text."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """

    usual: tuple[int, ...]
    usual_until: int
    max_model_len: int
    end: int
    drafts_trees: tuple[bool, ...]

    @classmethod
    def of(
        cls,
        end: int,
        options: RequestOptions,
        max_tokens: int,
        proposers: Sequence[ProposerConfig],
        max_model_len: int,
    ) -> "DraftLimits":
        """Combines a request's options with the configuration.

        Args:
            end: tokens of the text with all output tokens of the request.
            options: the request's options.
            max_tokens: the configuration's maximum draft length, in tokens.
            proposers: proposers of the configuration.
            max_model_len: maximum tokens of a request.
        """
        max_tokens = max_tokens if options.max_tokens is None else min(options.max_tokens, max_tokens)
        return cls(
            tuple(max_tokens if options.allows(proposer) else 0 for proposer in proposers),
            min(max_model_len, end) - 2 - max_tokens,
            max_model_len,
            end,
            tuple(proposer.drafts_trees for proposer in proposers),
        )

    def at(self, num_tokens: int) -> tuple[int, ...] | None:
        """Returns limits per proposer for the drafts after a step; None if all are 0.

        The step adds one token before the drafts, and verification one after them.

        Args:
            num_tokens: tokens of the text before the step.
        """
        if num_tokens <= self.usual_until:
            return self.usual
        room, depth = self.max_model_len - num_tokens - 2, self.end - num_tokens - 2
        if room <= 0 or depth <= 0:
            return None
        pairs = zip(self.usual, self.drafts_trees, strict=True)
        return tuple(min(limit, room) if is_tree else min(limit, room, depth) for limit, is_tree in pairs)
