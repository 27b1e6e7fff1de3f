"""The EAGLE-3 head's section of a plugin.yaml."""

import sys
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from vllm_spec_plugin.proposers.section import DraftWeights, ProposerConfig, Target
from vllm_spec_plugin.schema.errors import show
from vllm_spec_plugin.schema.section import conflicts

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer

ARCHITECTURE = "Eagle3LlamaForCausalLM"
"""The head's class in vLLM."""


class Eagle3Config(ProposerConfig):
    """Drafts with an EAGLE-3 head on hidden states of three of the target's layers."""

    keeps_kv: ClassVar[bool] = True
    uses_aux_states: ClassVar[bool] = True
    model_keys: ClassVar[tuple[str, ...]] = ("model",)

    method: Literal["eagle3"] = Field(description="The method of drafting.")
    model: str = Field(
        min_length=1,
        description="The head: a folder or a name on the Hugging Face hub. A relative path is looked for beside the "
        "configuration file first, then in the working directory.",
        json_schema_extra={"allowed": "a folder of an EAGLE-3 head or its name on the Hugging Face hub"},
    )
    draft_sampling: Literal["probabilistic", "greedy"] = Field(
        default="probabilistic",
        description="probabilistic samples from the head's distribution; greedy takes its most likely token.",
    )
    draft_temperature: Annotated[float, Field(gt=0, le=10)] | None = Field(
        default=None,
        description="Temperature at which drafts of sampled requests are sampled; null is each request's own.",
        json_schema_extra={"null": "each request's own"},
    )
    min_confidence: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="A draft ends before a token that the head gives less probability than this; 0 is off.",
        json_schema_extra={"zero": "off"},
    )

    @model_validator(mode="after")
    def _temperature_needs_sampling(self) -> Self:
        if self.draft_temperature is not None and self.draft_sampling == "greedy":
            text = f"got {show(self.draft_temperature)}, but proposer.draft_sampling is greedy, which does not sample"
            allowed = "leave it out, or set proposer.draft_sampling to probabilistic"
            conflicts([("draft_temperature", f"{text}; allowed: {allowed}")])
        return self

    @property
    def draft_weights(self) -> DraftWeights:
        """See `ProposerConfig`."""
        return DraftWeights(self.model, architecture=ARCHITECTURE)

    def check(self, target: Target | None, num_tokens: int, where: str) -> list[str]:
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.eagle3.check import check_head

        return check_head(target, self.model, where)

    @classmethod
    def vllm_settings(cls, draft: str) -> dict[str, Any]:
        """See `ProposerConfig`."""
        return {"method": "eagle3", "model": draft}

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings
        from vllm_spec_plugin.proposers.eagle3.proposer import Eagle3Proposer

        settings = DraftSettings(
            draft_sampling=self.draft_sampling,
            draft_temperature=self.draft_temperature,
            min_confidence=self.min_confidence,
            # As many as there are hidden states for.
            catch_up_tokens=sys.maxsize,
        )
        return Eagle3Proposer(engine, settings)
