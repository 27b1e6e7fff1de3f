"""The contract of every proposer: its input and its result. The contract of its configuration is in `section`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

# Configurations are read in every process, also without torch.
if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from vllm_spec_plugin.draft_plan import DraftPlan
    from vllm_spec_plugin.proposers.grammar.state import GrammarState
    from vllm_spec_plugin.verification.draft_probs import DraftProbs
    from vllm_spec_plugin.verification.topology import Topology


# A tuple: one is made per request and step, and a frozen dataclass takes three times as long to make, four to change.
class RequestView(NamedTuple):
    """A proposer's view of one request in one step.

    Attributes:
        request_id: id of the request, constant until it ends.
        token_ids: [num_tokens] int32, prompt and output so far. A read-only view of the runner's
            buffer, valid during `propose` only.
        num_draft_tokens: K, the maximum number of draft tokens; 0 only for proposers that keep KV, which get
            every request, to compute its text.
        uniforms: [K] float64 in [0, 1), the request's random numbers for sampling in this step.
        point_mass: whether drafts must be greedy, not sampled: for greedy requests, for seeded ones, whose output must
            not depend on drafts, and with a grammar, as the scheduler may drop tokens because of their value.
        row: the request's row of the step's batch.
        num_slots: number of slots in its KV cache blocks.
        in_prompt: whether the request is in prefill.
        depth: maximum depth of a draft tree; below `num_draft_tokens` only for proposers of trees.
        chain_only: whether drafts must have no branches, as with a grammar.
        sibling_uniforms: [depth, max_siblings] float64, random numbers for siblings; the first column is `uniforms`.
            Only for proposers that sample siblings.
        hidden: [hidden_size], the target's hidden state from which the newest token was sampled; only for proposers
            with `uses_hidden_states`.
        scope: requests of the same scope may draft from each other's text once it is finished; None is private. It is
            None for a seeded request with lenience below 1, whose output would depend on earlier text.
        draft_plan: proposers that may draft, with draft lengths.
        num_prompt_tokens: number of prompt tokens in `token_ids`.
        prediction: the client's predicted output, as token ids; None without one. Only for proposers with
            `uses_predictions`.
        grammar: the grammar of the request's structured output, as it is after `token_ids`; None without one, and while
            it does not constrain the output. Only for proposers with `uses_grammar`, which leave it as it is.
        least_acceptance: tokens that are accepted less probably, with all before them, cost more than they gain; 0 if
            that is not known. Only for proposers with `uses_grammar`.
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
    draft_plan: "DraftPlan" = ()
    num_prompt_tokens: int = 0
    prediction: Sequence[int] | None = None
    grammar: "GrammarState | None" = None
    least_acceptance: float = 0.0

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
        """The number of slots after the text."""
        return max(self.num_slots - len(self.token_ids), 0)


@dataclass(frozen=True)
class Draft:
    """Draft tokens for one request: a chain, or a tree.

    Attributes:
        token_ids: at most K tokens that continue the request's text; empty is no draft. Nodes of a tree are in
            depth-first order; the scheduler gets and cuts them by priority.
        probs: q, one row per token of `token_ids`; None for greedy tokens (point masses). A sibling's q is its
            distribution given the siblings before it.
        tree: shape of the draft; None is a chain. It must not depend on sampled tokens.
        kinds: of drafts from grammars, the kind of each token; else empty.
    """

    token_ids: list[int] = field(default_factory=list)
    probs: "DraftProbs" = None
    tree: "Topology | None" = None
    kinds: Sequence[int] = ()


NO_DRAFT = Draft()


class Proposer(Protocol):
    """Drafts tokens for each request.

    A proposer may keep state per request id. `forget` drops it: the request has ended or was preempted; a resumed
    request's state is rebuilt from its text. A proposer that drafts from finished responses has a method
    `finish(request_id: str) -> None`, called instead of `forget` when a request has ended. One that keeps other state
    has a method `reset() -> None`, which drops all state: with tensor parallelism each rank has a proposer, and all
    must have the same drafts. One request's text may not influence another's drafts, unless it is finished and both
    have the same `RequestView.scope`.

    A proposer that samples siblings has an attribute `num_siblings`, their maximum number. One with a true attribute
    `survives_faults` has correct state after `propose` has raised an exception; that of others is then dropped.
    """

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request, in order."""
        ...

    def forget(self, request_id: str) -> None:
        """Drops the state of a request, if there is any."""
        ...
