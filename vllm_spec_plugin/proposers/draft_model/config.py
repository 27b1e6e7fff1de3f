"""The draft model's section of a plugin.yaml."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from vllm_spec_plugin.proposers.native.config import NativeConfig
from vllm_spec_plugin.proposers.section import DraftWeights, ProposerConfig, Target
from vllm_spec_plugin.schema.errors import Mistake, config_error, show, show_source, unknown_word


class DraftModelConfig(ProposerConfig):
    """Drafts with a small model that has the target's vocabulary."""

    keeps_kv: ClassVar[bool] = True
    model_keys: ClassVar[tuple[str, ...]] = ("model",)

    method: Literal["draft_model"] = Field(description="The method of drafting.")
    model: str = Field(
        min_length=1,
        description="The draft model: a folder or a name on the Hugging Face hub. A relative path is looked for beside "
        "the configuration file first, then in the working directory; vllm_spec_plugin/models/NAME is a bundled one.",
        json_schema_extra={"allowed": "a model's folder or its name on the Hugging Face hub"},
    )
    draft_sampling: Literal["probabilistic", "greedy", "shared"] | None = Field(
        default=None,
        description="probabilistic samples from the model's distribution; greedy takes its most likely tokens; shared "
        "samples with the noise of verification, on vLLM's V2 runner.",
        json_schema_extra={"null": "probabilistic on V1; on V2 shared, or as verification.method needs"},
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] | None = Field(
        default=None,
        description="Data type of the draft model's weights; null is the target's, auto the checkpoint's.",
        json_schema_extra={"null": "the target's"},
    )
    quantization: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Quantization of the draft model's weights, by vLLM's name; null is the checkpoint's.",
        json_schema_extra={"allowed": "a name that vLLM's --quantization takes", "null": "as the checkpoint says"},
    )
    revision: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Branch, tag or commit of the draft model on the hub; null is the default branch.",
        json_schema_extra={"allowed": "a branch, tag or commit on the hub", "null": "the default branch"},
    )
    code_revision: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Branch, tag or commit of the draft model's own code on the hub, which runs only if vllm serve has "
        "--trust-remote-code; null is the default branch.",
        json_schema_extra={"allowed": "a branch, tag or commit on the hub", "null": "the default branch"},
    )
    max_model_len: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Maximum context of the draft model, in tokens: drafts end there; null takes the value from its "
        "config.",
        json_schema_extra={"null": "as its config says"},
    )
    catch_up_tokens: int = Field(
        default=2048,
        ge=1,
        description="Maximum tokens per step that the draft model prefills: prompts, and output tokens of steps "
        "without drafts. On vLLM's V2 runner prompts are prefilled as the target's are.",
    )

    @property
    def samples(self) -> bool:
        """See `ProposerConfig`."""
        return self.draft_sampling in (None, "probabilistic")

    @property
    def may_share_noise(self) -> bool:
        """See `ProposerConfig`."""
        return self.draft_sampling in (None, "shared")

    def on_v2(self, *, with_q: bool) -> NativeConfig | None:
        """See `ProposerConfig`: vLLM's own drafter, which has the target's data type."""
        if self.dtype is not None:
            return None
        keys = ("model", "quantization", "revision", "code_revision", "max_model_len")
        given = {key: value for key in keys if (value := getattr(self, key)) is not None}
        sampling = self.draft_sampling or ("probabilistic" if with_q else "shared")
        if sampling != "shared":
            given["draft_sample_method"] = sampling
        return NativeConfig(method="vllm", config={"method": "draft_model", **given})

    @property
    def draft_weights(self) -> DraftWeights:
        """See `ProposerConfig`."""
        return DraftWeights(
            self.model,
            self.dtype,
            self.quantization,
            revision=self.revision,
            code_revision=self.code_revision,
            max_model_len=self.max_model_len,
        )

    def check(self, target: Target | None, num_tokens: int, where: str) -> list[str]:
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.draft_model.compatibility import check_pair
        from vllm_spec_plugin.proposers.model_files import UnreadableError
        from vllm_spec_plugin.proposers.model_source import ModelSource, check_name, refusal
        from vllm_spec_plugin.proposers.weight_files import check_weights

        self._check_revisions(where)
        if target is None:
            check_name(self.model, where)
            return []
        if self.quantization is not None and self.quantization not in target.quantizations:
            text = unknown_word(self.quantization, sorted(target.quantizations), ", or null")
            raise config_error(show_source(where), [Mistake("proposer.quantization", text)])
        draft = ModelSource(
            self.model,
            revision=self.revision,
            trust_remote_code=target.source.trust_remote_code,
            code_revision=self.code_revision,
        )
        notes = check_pair(
            target.source, draft, target.tensor_parallel_size, target.max_model_len, where, self.max_model_len
        )
        try:
            check_weights(draft, target.load_format)
        except UnreadableError as error:
            raise refusal(where, str(error)) from None
        return notes

    def _check_revisions(self, where: str) -> None:
        """Refuses revisions of a folder, which would be ignored."""
        if Path(self.model).is_dir():
            text = "but proposer.model is a folder, which has no revisions; allowed: leave it out"
            given = {"revision": self.revision, "code_revision": self.code_revision}
            mistakes = [
                Mistake(f"proposer.{key}", f"got {show(value)}, {text}") for key, value in given.items() if value
            ]
            if mistakes:
                raise config_error(show_source(where), mistakes)

    @classmethod
    def vllm_settings(cls, draft: str) -> dict[str, Any]:
        """See `ProposerConfig`."""
        return {"model": draft}
