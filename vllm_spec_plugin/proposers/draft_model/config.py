"""The draft model's section of a plugin.yaml."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from vllm_spec_plugin.proposers.draft_model.autoregressive import AutoregressiveConfig
from vllm_spec_plugin.proposers.section import DraftWeights, Target
from vllm_spec_plugin.schema.errors import Mistake, config_error, show, show_source, unknown_word

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer


class DraftModelConfig(AutoregressiveConfig):
    """Drafts with a small model that has the target's vocabulary."""

    method: Literal["draft_model"] = Field(description="The method of drafting.")
    model: str = Field(
        min_length=1,
        description="The draft model: a folder or a name on the Hugging Face hub. A relative path is looked for beside "
        "the configuration file first, then in the working directory; vllm_spec_plugin/models/NAME is a bundled one.",
        json_schema_extra={"allowed": "a model's folder or its name on the Hugging Face hub"},
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
        "without drafts.",
    )

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

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.draft_model.proposer import DraftModelProposer

        return DraftModelProposer(engine, self.samples, self.catch_up_tokens)
