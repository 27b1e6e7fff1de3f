"""The EAGLE-3 head's section of a plugin.yaml."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from vllm_spec_plugin.proposers.section import DraftWeights, ProposerConfig, Target

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
        "configuration file first, then in the working directory; vllm_spec_plugin/models/NAME is a bundled one.",
        json_schema_extra={"allowed": "a folder of an EAGLE-3 head or its name on the Hugging Face hub"},
    )

    draft_sampling: Literal["probabilistic", "greedy"] = Field(
        default="probabilistic",
        description="probabilistic samples from the head's distribution; greedy takes its most likely tokens.",
    )

    @property
    def samples(self) -> bool:
        """See `ProposerConfig`."""
        return self.draft_sampling == "probabilistic"

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
