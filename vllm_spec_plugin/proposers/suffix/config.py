"""The suffix proposer's section of a plugin.yaml."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from vllm_spec_plugin.proposers.section import ProposerConfig
from vllm_spec_plugin.proposers.sharing import DEFAULT_SHARED_TOKENS, sharing_problems
from vllm_spec_plugin.schema.section import conflicts

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer


class SuffixConfig(ProposerConfig):
    """Drafts from repeated text: what followed the longest match most often."""

    method: Literal["suffix"] = Field(description="How drafts are made.")
    min_order: int = Field(default=2, ge=1, le=64, description="Fewest tokens that must match.")
    min_probability: float = Field(
        default=0.02,
        ge=0,
        lt=1,
        description="A draft ends before the probability that all of it is right, estimated from counts and from the "
        "length of the match, falls below this; 0 is off.",
        json_schema_extra={"zero": "off"},
    )
    draft_sampling: Literal["greedy", "sample"] = Field(
        default="greedy",
        description="greedy drafts the most frequent continuation; sample draws from the counts.",
    )
    shared: bool = Field(
        default=False,
        description="Drafts also from texts that have ended, of requests with the same cache_salt.",
        json_schema_extra={"allowed": "true or false"},
    )
    shared_tokens: Annotated[int, Field(ge=1024, le=10**9)] | None = Field(
        default_factory=lambda known: DEFAULT_SHARED_TOKENS if known["shared"] else None,
        description="Most tokens of such texts that are kept, in all; shared only.",
    )
    shared_scope: Literal["salt", "global"] | None = Field(
        default_factory=lambda known: "salt" if known["shared"] else None,
        description="Requests without a cache_salt: salt keeps each one private, global lets them draft from each "
        "other's texts; shared only.",
    )

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        conflicts(sharing_problems(self.shared, self.shared_tokens, self.shared_scope))
        return self

    @property
    def text_scope(self) -> Literal["salt", "global"] | None:
        """See `ProposerConfig`."""
        return self.shared_scope

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.suffix.proposer import SuffixProposer
        from vllm_spec_plugin.proposers.suffix.store import TextStore

        store = None if self.shared_tokens is None else TextStore(self.shared_tokens, vocab_size)
        return SuffixProposer(self.min_order, self.min_probability, self.draft_sampling, vocab_size, store)
