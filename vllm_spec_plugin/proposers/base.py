"""The contract of every proposer: what it is shown, and what it returns. `section` has its configuration's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

# A configuration is read in every process, also where torch is not needed.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from vllm_spec_plugin.turns import Turns
    from vllm_spec_plugin.verification.draft_probs import DraftProbs
    from vllm_spec_plugin.verification.topology import Topology


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

    def uniforms_of_siblings(self, depth: int, count: int) -> "npt.NDArray[np.float64]":
        """Returns [count] float64: one number per sibling drawn at `depth`, which counts from 0.

        Nodes with different parents may be drawn with the same numbers.

        Raises:
            ValueError: fewer are available; using a number twice among siblings would bias the output.
        """
        given = self.sibling_uniforms
        if given is None or depth >= len(given) or given.shape[1] < count:
            shape = None if given is None else given.shape
            raise ValueError(f"{count} random numbers requested at depth {depth}; available: {shape}")
        return given[depth, :count]

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
