"""The grammar proposer."""

import itertools
import time
from collections.abc import Callable, Sequence

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.grammar.acceptance import KindAcceptance
from vllm_spec_plugin.proposers.grammar.from_masks import draft_tokens
from vllm_spec_plugin.proposers.grammar.from_text import draft_text
from vllm_spec_plugin.proposers.grammar.state import NOTHING, GrammarDraft, GrammarState, Tokenizer, Trial
from vllm_spec_plugin.proposers.grammar.tokenization import Tokenization

# Maximum time of a draft.
SECONDS = 0.001
# Latest tokens of the output that show its style.
_NUM_READ = 64
# Drafts end before a token that is reached and accepted less probably, also where verification costs nothing.
_LEAST_ACCEPTANCE = 0.03


class GrammarProposer:
    """Drafts what a request's grammar allows alone, while that is likely enough accepted."""

    # A grammar is the same after a draft, also after an exception.
    survives_faults = True

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, clock: Callable[[], float] = time.perf_counter) -> None:
        """Reads the vocabulary.

        Args:
            tokenizer: the target's tokenizer.
            vocab_size: size of the vocabulary; only tokens below are drafted.
            clock: returns the time in seconds.
        """
        self._vocab_size, self._clock = vocab_size, clock
        self._tokenization, self._acceptance = Tokenization(tokenizer), KindAcceptance()

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request, in order; empty without a grammar, or where it leaves several ways."""
        return [self._draft(request) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the outcomes of the request's drafts."""
        self._acceptance.forget(request_id)

    def verified(self, request_id: str, kinds: Sequence[int], accepted: int) -> None:
        """Learns from a verified draft.

        Args:
            request_id: the request.
            kinds: kinds of the verified tokens.
            accepted: number of accepted ones.
        """
        self._acceptance.verified(request_id, kinds, accepted)

    def continued(
        self, view: RequestView, token_ids: Sequence[int], most: int, reached: float = 1.0
    ) -> tuple[list[int], GrammarDraft]:
        """Cuts another proposer's draft where it leaves the grammar, and continues it from there.

        Args:
            view: the request, with a grammar.
            token_ids: the other's draft.
            most: maximum tokens that are added.
            reached: probability that all tokens of the other's draft are accepted.

        Returns:
            The tokens that the grammar allows, and what continues them.
        """
        state = view.grammar
        assert state is not None, "nothing to continue from"
        with Trial(state) as trial:
            kept = list(itertools.takewhile(trial.accept_token, token_ids))
            most = min(most, view.num_draft_tokens - len(kept))
            if kept and kept[-1] in state.stop_token_ids:
                most = 0
            return kept, self._draft_after(view, state, kept, most, reached) if most > 0 else NOTHING

    def _draft(self, view: RequestView) -> Draft:
        if view.grammar is None:
            return NO_DRAFT
        token_ids, kinds = self._draft_after(view, view.grammar, [], view.num_draft_tokens, 1.0)
        return Draft(token_ids, kinds=kinds) if token_ids else NO_DRAFT

    def _draft_after(
        self, view: RequestView, state: GrammarState, before: list[int], most: int, reached: float
    ) -> GrammarDraft:
        """Drafts after a text and the tokens `before`: the state has taken them; they are accepted at `reached`."""
        tokenization, clock, text = self._tokenization, self._clock, view.token_ids
        deadline, last = clock() + SECONDS, before[-1] if before else int(text[-1])

        def is_late() -> bool:
            return clock() >= deadline

        def read() -> str:
            tail = text[max(view.num_prompt_tokens, len(text) - _NUM_READ) :].tolist()
            return tokenization.decode([*tail, *before])

        if state.reads_text:
            draft = draft_text(state, tokenization, last, read, most, is_late)
        else:
            draft = draft_tokens(state, tokenization, last, most, is_late)
        valid = next((i for i, token in enumerate(draft.token_ids) if token >= self._vocab_size), len(draft.token_ids))
        least = max(view.least_acceptance, _LEAST_ACCEPTANCE * reached)
        worth = self._acceptance.num_worth(view.request_id, draft.kinds[:valid], least, reached)
        return GrammarDraft(draft.token_ids[:worth], draft.kinds[:worth])
