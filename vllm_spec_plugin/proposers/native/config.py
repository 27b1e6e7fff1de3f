"""The section of a plugin.yaml for vLLM's own drafters: vLLM drafts and verifies, the plugin chooses how much."""

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from vllm_spec_plugin.proposers.section import ProposerConfig, beside
from vllm_spec_plugin.schema.errors import show
from vllm_spec_plugin.schema.section import conflicts

METHOD = "vllm"
# Keys of vLLM's speculative config that cannot stand beside the plugin's draft length, and the reason.
_OURS = {
    "num_speculative_tokens": "draft_length.tokens sets it",
    "num_speculative_tokens_per_batch_size": "draft_length chooses the length in each step",
    "enable_adaptive_verification": "it chooses the tokens to verify after drafting, draft_length before drafting",
}
# `synthetic` and `fly` change the distribution of outputs.
_EXACT_VERIFICATION = ("standard", "block")
_METHODS_NOT_TAKEN = ("custom_class",)
# Of others each draft token takes a pass.
_ONE_PASS = ("dflash", "dspark")


class NativeConfig(ProposerConfig):
    """Drafts with one of vLLM's own methods, on the runner and with the scheduling that vLLM chooses for it."""

    is_native: ClassVar[bool] = True

    method: Literal["vllm"] = Field(description="The method of drafting.")
    config: dict[str, Any] = Field(
        description="vLLM's speculative config, with the keys of --speculative-config, without "
        "num_speculative_tokens: draft_length.tokens sets it.",
        json_schema_extra={"allowed": "a speculative config for vLLM, such as {method: eagle3, model: HEAD}"},
    )

    @model_validator(mode="after")
    def _leaves_lengths_to_the_plugin(self) -> Self:
        problems = [
            (f"config.{key}", f"got {show(self.config[key])}, but {why}; allowed: leave it out")
            for key, why in _OURS.items()
            if self.config.get(key) not in (None, False)
        ]
        verification = self.config.get("rejection_sample_method") or _EXACT_VERIFICATION[0]
        if verification not in _EXACT_VERIFICATION:
            allowed = " or ".join(_EXACT_VERIFICATION)
            text = f"got {show(verification)}, which changes the distribution of outputs; allowed: {allowed}"
            problems.append(("config.rejection_sample_method", text))
        if self.config.get("method") in _METHODS_NOT_TAKEN:
            problems.append(("config.method", f"got {show(self.config['method'])}; allowed: a vLLM drafter"))
        elif not (self.config.get("method") or self.config.get("model")):
            problems.append(("config", "got neither method nor model; allowed: such as {method: eagle3, model: HEAD}"))
        conflicts(problems)
        return self

    @property
    def draft_sample_method(self) -> str:
        """The drafter's draws of tokens: `greedy`, or `probabilistic`, whose drafts have a q."""
        return str(self.config.get("draft_sample_method") or "greedy")

    @property
    def verification(self) -> Literal["block", "token"] | None:
        """The verification that vLLM's own keys ask for; None if they leave it to the plugin."""
        if method := self.config.get("rejection_sample_method"):
            return "block" if method == "block" else "token"
        return None if self.draft_sample_method == "greedy" else "token"

    @property
    def may_share_noise(self) -> bool:
        """See `ProposerConfig`."""
        return self.config.get("draft_sample_method") is None

    @property
    def drafts_in_one_pass(self) -> bool:
        """See `ProposerConfig`."""
        return self.config.get("method") in _ONE_PASS or bool(self.config.get("parallel_drafting"))

    @property
    def models(self) -> tuple[str, ...]:
        """See `ProposerConfig`."""
        model = self.config.get("model")
        return (model,) if isinstance(model, str) else ()

    def resolved(self, folder: Path) -> Self:
        """See `ProposerConfig`."""
        if not self.models:
            return self
        return self.model_copy(update={"config": self.config | {"model": beside(self.models[0], folder)}})
