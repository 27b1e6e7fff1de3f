"""What every method says of itself: its section of a plugin.yaml, and all that the rest must know of the method."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from vllm_spec_plugin.schema.section import Section

# A configuration is read in every process, also where torch is not needed.
if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer
    from vllm_spec_plugin.proposers.model_source import ModelSource


class DraftWeights(NamedTuple):
    """A draft model that the worker loads beside the target.

    Attributes:
        model: folder or name on the Hugging Face hub.
        dtype: number format of the weights; None is the target's.
        quantization: in vLLM's words; None is as the checkpoint says.
        num_branches: sequences that are drafted side by side per request.
    """

    model: str
    dtype: str | None = None
    quantization: str | None = None
    num_branches: int = 1


class FixedTree(NamedTuple):
    """The size of trees whose shape is configured.

    Attributes:
        key: the key of the section that says the shape.
        num_nodes: draft tokens in all.
        depth: draft tokens one after the other.
    """

    key: str
    num_nodes: int
    depth: int


@dataclass(frozen=True)
class Target:
    """The model that is served, and how.

    Attributes:
        source: where it comes from.
        tensor_parallel_size: number of devices that it is split over.
        max_model_len: most tokens of a text; None is what the model's config says.
        quantizations: ways of quantization that vLLM knows.
    """

    source: "ModelSource"
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
    quantizations: tuple[str, ...] = ()


class ProposerConfig(Section):
    """The section `proposer` of one method, and all that the rest must know of the method.

    A subclass has a key `method` of one word, and a `description` for each key. What a default below says holds for a
    method that drafts chains from a request's own text.

    Attributes:
        keeps_kv: whether the drafts need slots in the KV cache; then `draft_weights` says of which model.
        uses_hidden_states: whether it drafts from the target's last hidden states.
        uses_predictions: whether it drafts from a request's predicted output: requests without one are not drafted for.
        model_keys: keys whose values are a model's folder or its name on the Hugging Face hub. A relative path becomes
            an absolute one where it names a folder beside the configuration file.
        planned_keys: keys that `vllm-spec plan` measures the method with, where they are not its defaults.
    """

    keeps_kv: ClassVar[bool] = False
    uses_hidden_states: ClassVar[bool] = False
    uses_predictions: ClassVar[bool] = False
    model_keys: ClassVar[tuple[str, ...]] = ()
    planned_keys: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    method: str

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """Builds the proposer, in the worker. Import what it needs here, not where the section is defined.

        Args:
            num_tokens: most tokens of a draft.
            vocab_size: the target's.
            engine: with `keeps_kv` a `DraftEngine`; with `uses_hidden_states` a `StatesEngine`; else None.
        """
        raise NotImplementedError

    def check(self, target: Target | None, num_tokens: int, where: str) -> list[str]:
        """Checks before a server starts whether the method can draft for its target. Loads no weights.

        Args:
            target: None is not known: only what can be checked without it.
            num_tokens: most tokens of a draft.
            where: the configuration file, for messages.

        Returns:
            Warnings, one line each.

        Raises:
            ConfigError: it cannot.
        """
        return []

    @property
    def draft_weights(self) -> DraftWeights | None:
        """The model whose keys and values are kept beside the target's; None if `keeps_kv` is not set."""
        return None

    @property
    def text_scope(self) -> Literal["salt", "global"] | None:
        """Where it learns from texts that have ended: requests that share them if they have no cache_salt.

        "salt" keeps each one private, "global" is all of them. None is a method that does not learn.
        """
        return None

    @property
    def drafts_trees(self) -> bool:
        """Whether a draft may have branches."""
        return False

    @property
    def fixed_tree(self) -> FixedTree | None:
        """The size of its trees if the configuration fixes their shape, else None."""
        return None

    @property
    def branch_shapes(self) -> tuple[tuple[int, int], ...]:
        """[nodes + 1] if branches need KV blocks of their own: chains and depth of the first n nodes; else empty."""
        return ()

    def tree_size(self, most: int) -> tuple[int, int]:
        """Tokens of a tree, and most of them one after the other, where it has `most` tokens at most."""
        return (most, most) if self.fixed_tree is None else self.fixed_tree[1:]

    def tree_order(self, most: int) -> tuple[int, ...]:
        """Orders the nodes of a draft of `most` tokens by path probability; a turn of n tokens drafts the first n.

        Returns:
            Each node's parent in that order, which comes before it; -1 where that is the end of the text.
        """
        return tuple(range(-1, most - 1))

    @classmethod
    def vllm_settings(cls, draft: str) -> dict[str, Any] | None:
        """Settings of vLLM's own speculation by the same method, which benchmarks call `stock:METHOD`.

        Args:
            draft: folder or name of a draft model, where one is needed.

        Returns:
            None if vLLM has no such method.
        """
        return None

    @property
    def models(self) -> tuple[str, ...]:
        """Folders and names of all models that it needs."""
        values = (getattr(self, key) for key in self.model_keys)
        return tuple(value for value in values if isinstance(value, str))

    def resolved(self, folder: Path) -> Self:
        """The same with absolute paths of the models that lie beside the file, in `folder`."""
        given = {key: getattr(self, key) for key in self.model_keys}
        changed = {key: _beside(value, folder) for key, value in given.items() if isinstance(value, str)}
        return self.model_copy(update=changed) if changed else self

    @property
    def members(self) -> "tuple[ProposerConfig, ...]":
        """The proposers of this section, in their order: one."""
        return (self,)


def _beside(model: str, folder: Path) -> str:
    if Path(model).is_absolute():
        return model
    try:
        beside = (folder / model).resolve()
        return str(beside) if beside.is_dir() else model
    except (OSError, ValueError):  # no name a folder could have
        return model
