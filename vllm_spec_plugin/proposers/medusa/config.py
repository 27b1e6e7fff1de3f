"""The Medusa heads' section of a plugin.yaml."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, model_validator

from vllm_spec_plugin.proposers.section import FixedTree, ProposerConfig, Target
from vllm_spec_plugin.schema.section import MAX_DEPTH, MAX_SIBLINGS, conflicts, numbers_by_depth

if TYPE_CHECKING:
    import torch

    from vllm_spec_plugin.proposers.node_order import NodeOrder


def _tree(value: object) -> Literal["auto"] | tuple[tuple[int, ...], ...] | None:
    if value is None:
        return None
    if value == "auto":
        return "auto"
    if not isinstance(value, list | tuple) or not value:
        raise ValueError
    return tuple(numbers_by_depth(path, range(MAX_SIBLINGS), f"[{i}]") for i, path in enumerate(value))


class MedusaConfig(ProposerConfig):
    """Drafts with heads on the target's last hidden state, one head per token ahead."""

    uses_hidden_states: ClassVar[bool] = True
    model_keys: ClassVar[tuple[str, ...]] = ("model",)

    method: Literal["medusa"] = Field(description="The method of drafting.")
    model: str = Field(
        min_length=1,
        description="The heads: a folder or a name on the Hugging Face hub. A relative path is looked for beside the "
        "configuration file first, then in the working directory; vllm_spec_plugin/models/NAME is a bundled one.",
        json_schema_extra={"allowed": "a folder of Medusa heads or its name on the Hugging Face hub"},
    )
    draft_sampling: Literal["probabilistic", "greedy", "shared"] | None = Field(
        default=None,
        description="probabilistic samples from each head's distribution, on vLLM's V1 runner; greedy takes its most "
        "likely tokens; shared samples with the noise of verification, on V2.",
        json_schema_extra={"null": "probabilistic on V1, shared on V2"},
    )
    tree: Annotated[Any, PlainValidator(_tree)] = Field(
        default=None,
        description="The shape of drafts: null is a chain; auto is the best tree of draft_length.tokens nodes by the "
        "heads' measured accuracies; or a list of paths of ranks.",
        json_schema_extra={
            "allowed": f"auto, null, or a list of paths such as [[0], [1], [0, 0]]: each a list of 1 to {MAX_DEPTH} "
            f"ranks from 0 to {MAX_SIBLINGS - 1}",
            "null": "a chain",
        },
    )

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        if isinstance(self.tree, tuple):
            paths = set(self.tree)
            orphan = next((path for path in self.tree if len(path) > 1 and path[:-1] not in paths), None)
            if len(paths) < len(self.tree):
                twice = next(path for path in self.tree if self.tree.count(path) > 1)
                conflicts([("tree", f"path {list(twice)} occurs twice; allowed: each path once")])
            if orphan is not None:
                text = f"path {list(orphan)} has no parent; allowed: add {list(orphan[:-1])}, or leave it out"
                conflicts([("tree", text)])
        return self

    @property
    def drafts_trees(self) -> bool:
        """See `ProposerConfig`."""
        return self.tree is not None

    def on_v2(self, *, with_q: bool) -> Self | None:
        """See `ProposerConfig`."""
        return self if self.tree is None else None

    @property
    def may_share_noise(self) -> bool:
        """See `ProposerConfig`."""
        return self.draft_sampling in (None, "shared")

    @property
    def fixed_tree(self) -> FixedTree | None:
        """See `ProposerConfig`."""
        return FixedTree("tree", len(self.tree), max(map(len, self.tree))) if isinstance(self.tree, tuple) else None

    def tree_size(self, num_tokens: int) -> tuple[int, int]:
        """See `ProposerConfig`; the depth of an automatic tree is an estimate."""
        return super().tree_size(num_tokens) if self.fixed_tree is not None else (num_tokens, min(num_tokens, 4))

    def tree_order(self, num_tokens: int) -> tuple[int, ...]:
        """See `ProposerConfig`; an automatic tree reads the heads' measured accuracies."""
        return super().tree_order(num_tokens) if self.tree is None else self.node_order(num_tokens).parents

    def node_order(self, num_tokens: int) -> "NodeOrder":
        """Returns the nodes of a tree of at most `num_tokens` tokens by path probability."""
        from vllm_spec_plugin.proposers.medusa.checkpoint import read_heads_config
        from vllm_spec_plugin.proposers.medusa.shape import node_order

        return node_order(self.tree, num_tokens, read_heads_config(self.model), draws=self.samples)

    @property
    def samples(self) -> bool:
        """See `ProposerConfig`."""
        return self.draft_sampling in (None, "probabilistic")

    def check(self, target: Target | None, num_tokens: int, where: str) -> list[str]:
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.medusa.check import check_heads

        # An automatic tree fits any number of heads.
        num_heads = None if self.tree == "auto" else self.fixed_tree.depth if self.fixed_tree else num_tokens
        source = None if target is None else target.source
        return check_heads(source, self.model, num_heads, where, needs_accuracy=self.tree == "auto")

    def draft_from_states(
        self, num_tokens: int, hidden_size: int, vocab_size: int, dtype: "torch.dtype", device: "torch.device"
    ) -> "Callable[[torch.Tensor, int], torch.Tensor]":
        """See `ProposerConfig`."""
        from vllm_spec_plugin.proposers.medusa.checkpoint import load_heads

        return load_heads(self.model, hidden_size, vocab_size, dtype, device, num_tokens)
