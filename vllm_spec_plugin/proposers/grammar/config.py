"""The grammar proposer's section of a plugin.yaml."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from vllm_spec_plugin.proposers.section import ProposerConfig

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer


class GrammarConfig(ProposerConfig):
    """Drafts what the grammar of a request's structured output forces."""

    uses_grammar: ClassVar[bool] = True

    method: Literal["grammar"] = Field(description="The method of drafting.")

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.grammar.proposer import GrammarProposer

        return GrammarProposer(engine, vocab_size)
