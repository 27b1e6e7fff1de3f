"""The keys of methods that draft token by token with a model of their own."""

from typing import ClassVar, Literal

from pydantic import Field

from vllm_spec_plugin.proposers.section import ProposerConfig


class AutoregressiveConfig(ProposerConfig):
    """Drafts with a model that keeps keys and values in the target's blocks."""

    keeps_kv: ClassVar[bool] = True
    model_keys: ClassVar[tuple[str, ...]] = ("model",)

    model: str = Field(min_length=1, description="The model: a folder or a name on the Hugging Face hub.")
    draft_sampling: Literal["probabilistic", "greedy"] = Field(
        default="probabilistic",
        description="probabilistic samples from the model's distribution; greedy takes its most likely tokens.",
    )

    @property
    def samples(self) -> bool:
        """Whether drafts of sampled requests are sampled."""
        return self.draft_sampling == "probabilistic"
