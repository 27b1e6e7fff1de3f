"""The section of a plugin.yaml for n-grams, which the suffix proposer drafts; `docs/suffix.md` says why."""

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from vllm_spec_plugin.proposers.section import ProposerConfig
from vllm_spec_plugin.proposers.sharing import (
    SHARED,
    SHARED_SCOPE,
    SHARED_TOKENS,
    SharedScope,
    SharedTokens,
    sharing_problems,
)
from vllm_spec_plugin.proposers.suffix.config import SuffixConfig
from vllm_spec_plugin.schema.section import conflicts

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer

# Of drafts; n-gram tables drafted nearly all of these.
_MIN_PROBABILITY = 0.02
# vLLM's prompt_lookup_max.
_MAX_ORDER = 5


class NgramConfig(ProposerConfig):
    """Drafts as method suffix does, with fewer keys; new files should name suffix."""

    method: Literal["ngram"] = Field(description="The method of drafting.")
    min_order: int = Field(default=2, ge=1, le=16, description="Minimum n-gram length that must match, in tokens.")
    shared: bool = SHARED
    shared_tokens: SharedTokens = SHARED_TOKENS
    shared_scope: SharedScope = SHARED_SCOPE

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        conflicts(sharing_problems(self.shared, self.shared_tokens, self.shared_scope))
        return self

    @property
    def text_scope(self) -> SharedScope:
        """See `ProposerConfig`."""
        return self.shared_scope

    @classmethod
    def vllm_settings(cls, draft: str) -> dict[str, Any]:
        """vLLM's n-gram method, with this method's default n-gram lengths."""
        return {"prompt_lookup_min": cls.model_fields["min_order"].default, "prompt_lookup_max": _MAX_ORDER}

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """See `ProposerConfig`."""
        keys = ("min_order", "shared", "shared_tokens", "shared_scope")
        same = {key: getattr(self, key) for key in keys}
        suffix = SuffixConfig(method="suffix", min_probability=_MIN_PROBABILITY, **same)
        return suffix.create(num_tokens, vocab_size, engine)
