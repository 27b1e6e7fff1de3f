"""The draft model's section of a plugin.yaml."""

import itertools
import math
import operator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, model_validator

from vllm_spec_plugin.proposers.section import DraftWeights, FixedTree, ProposerConfig, Target
from vllm_spec_plugin.schema.errors import Mistake, config_error, show, show_source, unknown_word
from vllm_spec_plugin.schema.section import MAX_DEPTH, MAX_SIBLINGS, conflicts, numbers_by_depth

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer
    from vllm_spec_plugin.proposers.node_order import NodeOrder


def _branches(value: object) -> tuple[int, ...] | None:
    return None if value is None else numbers_by_depth(value, range(1, MAX_SIBLINGS + 1))


class DraftModelConfig(ProposerConfig):
    """Drafts with a small model that has the target's vocabulary."""

    keeps_kv: ClassVar[bool] = True
    model_keys: ClassVar[tuple[str, ...]] = ("model",)

    method: Literal["draft_model"] = Field(description="The method of drafting.")
    model: str = Field(
        min_length=1,
        description="The draft model: a folder or a name on the Hugging Face hub. A relative path is looked for beside "
        "the configuration file first, then in the working directory.",
        json_schema_extra={"allowed": "a model's folder or its name on the Hugging Face hub"},
    )
    draft_sampling: Literal["probabilistic", "greedy"] = Field(
        default="probabilistic",
        description="probabilistic samples from the draft model's distribution; greedy takes its most likely token.",
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
        description="A draft ends before a token that the draft model gives less probability than this; 0 is off.",
        json_schema_extra={"zero": "off"},
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
        description="Maximum context of the draft model, in tokens: drafts end there; null is what its config says.",
        json_schema_extra={"null": "as its config says"},
    )
    catch_up_tokens: int = Field(
        default=2048,
        ge=1,
        description="Maximum tokens per step that the draft model prefills: prompts, and output tokens of steps "
        "without drafts.",
    )
    branches: Annotated[Any, PlainValidator(_branches)] = Field(
        default=None,
        description="Drafts a tree: the number of children of each node, by depth; null is one chain.",
        json_schema_extra={
            "allowed": f"a list of 1 to {MAX_DEPTH} whole numbers from 1 to {MAX_SIBLINGS} such as [3, 1, 1], or null",
            "null": "one chain",
        },
    )

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        problems = []
        if self.draft_temperature is not None and self.draft_sampling == "greedy":
            text = f"got {show(self.draft_temperature)}, but proposer.draft_sampling is greedy, which does not sample"
            allowed = "leave it out, or set proposer.draft_sampling to probabilistic"
            problems.append(("draft_temperature", f"{text}; allowed: {allowed}"))
        if self.branches is not None and self.min_confidence:
            text = f"got {show(self.min_confidence)}, but proposer.branches fixes the drafts' shape"
            problems.append(("min_confidence", f"{text}; allowed: 0, or leave proposer.branches out"))
        conflicts(problems)
        return self

    @property
    def draft_weights(self) -> DraftWeights:
        """See `ProposerConfig`."""
        return DraftWeights(
            self.model,
            self.dtype,
            self.quantization,
            math.prod(self.branches or ()),
            revision=self.revision,
            code_revision=self.code_revision,
            max_model_len=self.max_model_len,
        )

    @property
    def drafts_trees(self) -> bool:
        """See `ProposerConfig`."""
        return self.branches is not None

    @property
    def fixed_tree(self) -> FixedTree | None:
        """See `ProposerConfig`."""
        if self.branches is None:
            return None
        return FixedTree("branches", sum(itertools.accumulate(self.branches, operator.mul)), len(self.branches))

    @property
    def branch_shapes(self) -> tuple[tuple[int, int], ...]:
        """See `ProposerConfig`."""
        return () if self.branches is None else self._node_order.prefixes

    def tree_order(self, num_tokens: int) -> tuple[int, ...]:
        """See `ProposerConfig`."""
        return super().tree_order(num_tokens) if self.branches is None else self._node_order.parents

    @property
    def _node_order(self) -> "NodeOrder":
        """The tree's nodes in the order of path probability."""
        from vllm_spec_plugin.proposers.node_order import NodeOrder

        return NodeOrder.of_branches(self.branches or ())

    def check(self, target: Target | None, num_tokens: int, where: str) -> list[str]:
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.draft_model.pair import check_pair
        from vllm_spec_plugin.proposers.model_source import ModelSource, check_name

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
        return check_pair(
            target.source, draft, target.tensor_parallel_size, target.max_model_len, where, self.max_model_len
        )

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
        from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings
        from vllm_spec_plugin.proposers.draft_model.proposer import DraftModelProposer

        settings = DraftSettings(
            draft_sampling=self.draft_sampling,
            draft_temperature=self.draft_temperature,
            min_confidence=self.min_confidence,
            catch_up_tokens=self.catch_up_tokens,
            branches=self.branches or (),
        )
        return DraftModelProposer(engine, settings)
