"""The contract of every proposer: its section of a plugin.yaml, what it is shown, and what it returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from vllm_spec_plugin.config_section import Section

# A configuration is read in every process, also where torch is not needed.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from vllm_spec_plugin.proposers.model_source import ModelSource
    from vllm_spec_plugin.turns import Turns
    from vllm_spec_plugin.verification.draft_probs import DraftProbs
    from vllm_spec_plugin.verification.topology import Topology


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
        model_keys: keys whose values are a model's folder or its name on the Hugging Face hub. A relative path becomes
            an absolute one where it names a folder beside the configuration file.
        planned_keys: keys that `vllm-spec plan` measures the method with, where they are not its defaults.
    """

    keeps_kv: ClassVar[bool] = False
    uses_hidden_states: ClassVar[bool] = False
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


@dataclass(frozen=True)
class RequestView:
    """What a proposer may know of one request in one step.

    Attributes:
        request_id: the same string as long as the request lives.
        token_ids: [num_tokens] int32, prompt and output so far. A read-only view of the runner's
            buffer, valid during `propose` only.
        num_draft_tokens: K, the most tokens to draft; 0 only for proposers that keep KV, which are
            shown every request, to keep up with its text.
        uniforms: [K] float64 in [0, 1), the request's own randomness for this step's draws.
        point_mass: drafts must be certain, not drawn: for greedy requests, for seeded ones, whose output must not show
            what was drafted, and with a grammar, where the scheduler may drop drafts because of their value.
        row: the request's place in the step's batch.
        num_slots: tokens that its KV cache blocks have room for.
        in_prompt: the target is not through with its text yet.
        depth: most draft tokens one after the other; below `num_draft_tokens` only for proposers of trees.
        chain_only: no branches for this request: what it asks for is defined along one continuation.
        sibling_uniforms: [depth, most siblings] float64, for tokens that may take the same place; the first of each
            place are those of `uniforms`. Only for proposers that draw them.
        hidden: [hidden_size], the target's last hidden state before the newest token was sampled; only
            for proposers that draft from it.
        scope: requests of the same scope may draft from each other's texts once these have ended; None is
            private. It is None for a seeded request whose drafts are verified with lenience: its output would depend
            on what was said before.
        turns: who may draft, and how much.
    """

    request_id: str
    token_ids: "npt.NDArray[np.int32]"
    num_draft_tokens: int
    uniforms: "npt.NDArray[np.float64]"
    point_mass: bool = False
    row: int = 0
    num_slots: int = 0
    in_prompt: bool = False
    depth: int = 0
    chain_only: bool = False
    sibling_uniforms: "npt.NDArray[np.float64] | None" = None
    hidden: "torch.Tensor | None" = None
    scope: str | None = None
    turns: "Turns" = ()

    def uniforms_of_siblings(self, place: int, count: int) -> "npt.NDArray[np.float64]":
        """[count]: one for each token drawn for that place. Nodes with other parents may be drawn with the same.

        Raises:
            ValueError: there are not so many; a number used twice for siblings would bias the output.
        """
        given = self.sibling_uniforms
        if given is None or place >= len(given) or given.shape[1] < count:
            shape = None if given is None else given.shape
            raise ValueError(f"{count} random numbers are wanted for place {place}, of {shape}")
        return given[place, :count]

    @property
    def num_draft_slots(self) -> int:
        """How many drafts find a slot after the text."""
        return max(self.num_slots - len(self.token_ids), 0)


@dataclass(frozen=True)
class Draft:
    """Guesses for one request: a chain, or a tree.

    Attributes:
        token_ids: at most K tokens, the first to follow the request's text; empty is no guess. Of a tree
            depth first, in the order of its topology's nodes; the scheduler gets, and cuts, them by priority.
        probs: q, one row per token of `token_ids`; None where every token was certain (a point mass). Of
            siblings, which are tried in their order, each one's q is the distribution that it was drawn
            from given those before it.
        tree: which token follows which; None is a chain. It must not depend on the tokens that were drawn.
    """

    token_ids: list[int] = field(default_factory=list)
    probs: "DraftProbs" = None
    tree: "Topology | None" = None


NO_DRAFT = Draft()


class Proposer(Protocol):
    """Guesses what each request says next.

    A proposer may keep state per request id. It is told with `forget` when that state is to go: the
    request ended or was preempted (it may come back: then the state is rebuilt from its text). One that
    learns from texts has a method `finish(request_id: str) -> None`, which is called instead where the request
    ended. One that keeps more than that has a method `reset() -> None`, which drops everything: under tensor
    parallelism each rank has a proposer, and all of them must draft the same. Nothing of one request's text may
    reach another's drafts, unless it has ended and both are of the same `RequestView.scope`.

    A proposer that draws several tokens for the same place says how many in an attribute `num_siblings`.
    """

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """One draft per request, in order."""
        ...

    def forget(self, request_id: str) -> None:
        """Drops what is kept for that request, if anything."""
        ...
