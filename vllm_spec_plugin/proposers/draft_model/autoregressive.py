"""The keys of methods that draft token by token with a model of their own, as chains or trees."""

import itertools
import math
import operator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainValidator, model_validator

from vllm_spec_plugin.proposers.section import FixedTree, ProposerConfig
from vllm_spec_plugin.schema.errors import show
from vllm_spec_plugin.schema.section import MAX_DEPTH, MAX_SIBLINGS, conflicts, numbers_by_depth

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings
    from vllm_spec_plugin.proposers.node_order import NodeOrder


def _branches(value: object) -> tuple[int, ...] | None:
    return None if value is None else numbers_by_depth(value, range(1, MAX_SIBLINGS + 1))


class AutoregressiveConfig(ProposerConfig):
    """Drafts with a model that keeps keys and values in the target's blocks."""

    keeps_kv: ClassVar[bool] = True
    model_keys: ClassVar[tuple[str, ...]] = ("model",)

    model: str = Field(min_length=1, description="The model: a folder or a name on the Hugging Face hub.")
    branches: Annotated[Any, PlainValidator(_branches)] = Field(
        default=None,
        description="Drafts a tree: the number of children of each node, by depth; null is one chain.",
        json_schema_extra={
            "allowed": f"a list of 1 to {MAX_DEPTH} whole numbers from 1 to {MAX_SIBLINGS} such as [3, 1, 1], or null",
            "null": "one chain",
        },
    )
    nodes: Literal["fixed", "confidence"] = Field(
        default="fixed",
        description="The nodes that a tree of n tokens has: fixed takes the first n by average path probability; "
        "confidence those that the model gives the highest path probability in this text. These are not sampled.",
    )
    draft_sampling: Literal["probabilistic", "greedy"] = Field(
        default_factory=lambda known: "greedy" if known.get("nodes") == "confidence" else "probabilistic",
        description="probabilistic samples from the model's distribution; greedy takes its most likely tokens. The "
        "default is greedy with nodes confidence, else probabilistic.",
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
        description="A draft ends before a token that the model gives less probability than this; 0 is off.",
        json_schema_extra={"zero": "off"},
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
        if self.by_confidence and self.branches is None:
            text = "got confidence, but proposer.branches is null, so drafts are chains"
            problems.append(("nodes", f"{text}; allowed: fixed, or set proposer.branches"))
        if self.by_confidence and self.draft_sampling != "greedy":
            text = f"got {self.draft_sampling}, but proposer.nodes is confidence, whose nodes are not sampled"
            problems.append(("draft_sampling", f"{text}; allowed: greedy, or set proposer.nodes to fixed"))
        conflicts(problems)
        return self

    @property
    def by_confidence(self) -> bool:
        """Whether the nodes of a tree are chosen by the model's probabilities in each text."""
        return self.nodes == "confidence"

    @property
    def num_branches(self) -> int:
        """Number of sequences per request that are drafted at once."""
        return math.prod(self.branches or ())

    @property
    def drafts_trees(self) -> bool:
        """See `ProposerConfig`."""
        return self.branches is not None

    @property
    def fixed_tree(self) -> FixedTree | None:
        """See `ProposerConfig`."""
        if self.branches is None or self.by_confidence:
            return None
        return FixedTree("branches", self._num_nodes, len(self.branches))

    @property
    def branch_shapes(self) -> tuple[tuple[int, int], ...]:
        """See `ProposerConfig`; by confidence, n nodes are chosen from all nodes up to depth n."""
        if self.branches is None:
            return ()
        if not self.by_confidence:
            return self._node_order.prefixes
        depths = range(len(self.branches) + 1)
        return tuple((math.prod(self.branches[:depth]) if depth else 0, depth) for depth in depths)

    def tree_size(self, num_tokens: int) -> tuple[int, int]:
        """See `ProposerConfig`."""
        if self.branches is None:
            return num_tokens, num_tokens
        return min(self._num_nodes, num_tokens), len(self.branches)

    def tree_order(self, num_tokens: int) -> tuple[int, ...]:
        """See `ProposerConfig`; by confidence, the order of average path probability."""
        return super().tree_order(num_tokens) if self.branches is None else self._node_order.parents[:num_tokens]

    @property
    def _num_nodes(self) -> int:
        return sum(itertools.accumulate(self.branches or (), operator.mul))

    @property
    def _node_order(self) -> "NodeOrder":
        """The tree's nodes in the order of path probability."""
        from vllm_spec_plugin.proposers.node_order import NodeOrder

        return NodeOrder.of_branches(self.branches or ())

    def _settings(self, catch_up_tokens: int) -> "DraftSettings":
        """Returns the settings of the proposer.

        Args:
            catch_up_tokens: maximum tokens of text computed in a step.
        """
        from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings

        return DraftSettings(
            draft_sampling=self.draft_sampling,
            draft_temperature=self.draft_temperature,
            min_confidence=self.min_confidence,
            catch_up_tokens=catch_up_tokens,
            branches=self.branches or (),
            by_confidence=self.by_confidence,
        )
