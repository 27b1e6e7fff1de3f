"""The prediction proposer's section of a plugin.yaml."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from vllm_spec_plugin.proposers.section import ProposerConfig

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer


class PredictionConfig(ProposerConfig):
    """Drafts from a request's predicted output, `prediction` of OpenAI's API."""

    uses_predictions: ClassVar[bool] = True

    method: Literal["prediction"] = Field(description="The method of drafting.")

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.prediction.proposer import PredictionProposer

        return PredictionProposer(vocab_size)
