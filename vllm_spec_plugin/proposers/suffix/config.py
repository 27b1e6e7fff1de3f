"""The suffix proposer's section of a plugin.yaml."""

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
from vllm_spec_plugin.schema.section import conflicts

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer


class SuffixConfig(ProposerConfig):
    """Drafts the most frequent continuation of the longest repeated suffix."""

    method: Literal["suffix"] = Field(description="The method of drafting.")
    min_order: int = Field(default=1, ge=1, le=64, description="Minimum match length, in tokens.")
    min_probability: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="A draft ends before its estimated probability of full acceptance, from the counts and the match "
        "length, falls below this; 0 is off.",
        json_schema_extra={"zero": "off"},
    )
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
        """vLLM's suffix method, which needs the package arctic-inference."""
        return {}

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.suffix.proposer import SuffixProposer
        from vllm_spec_plugin.proposers.suffix.store import TextStore

        store = None if self.shared_tokens is None else TextStore(self.shared_tokens, vocab_size)
        return SuffixProposer(self.min_order, self.min_probability, vocab_size, store)
