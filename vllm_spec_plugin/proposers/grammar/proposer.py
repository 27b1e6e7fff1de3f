"""The grammar proposer."""

import itertools
import time
from collections.abc import Callable, Sequence

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.grammar.from_masks import draft_tokens
from vllm_spec_plugin.proposers.grammar.from_text import draft_text
from vllm_spec_plugin.proposers.grammar.state import GrammarState, Kind, Tokenizer, Trial
from vllm_spec_plugin.proposers.grammar.tokenization import Tokenization

# Maximum time of a draft.
SECONDS = 0.001
# Latest tokens of the output that show its style.
_NUM_READ = 64


class GrammarProposer:
    """Drafts what a request's grammar allows alone.

    Attributes:
        kinds: by request id, the kinds of the tokens of its latest draft.
    """

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
        self._tokenization = Tokenization(tokenizer)
        self.kinds: dict[str, list[Kind]] = {}

    def propose(self, requests: Sequence[RequestView]) -> list[Draft]:
        """Returns one draft per request, in order; empty without a grammar, or where it leaves several ways."""
        return [self._draft(request) for request in requests]

    def forget(self, request_id: str) -> None:
        """Drops the kinds of the request's draft."""
        self.kinds.pop(request_id, None)

    def continued(self, view: RequestView, token_ids: Sequence[int], most: int) -> tuple[list[int], list[int]]:
        """Cuts another proposer's draft where it leaves the grammar, and continues it from there.

        Args:
            view: the request, with a grammar.
            token_ids: the other's draft.
            most: maximum tokens that are added.

        Returns:
            The tokens that the grammar allows, and those that continue them; possibly none.
        """
        state = view.grammar
        assert state is not None, "nothing to continue from"
        with Trial(state) as trial:
            kept = list(itertools.takewhile(trial.accept_token, token_ids))
            most = min(most, view.num_draft_tokens - len(kept))
            added, kinds = self._draft_after(view, state, kept, most) if most > 0 else ([], [])
        self.kinds[view.request_id] = kinds
        return kept, added

    def _draft(self, view: RequestView) -> Draft:
        self.kinds.pop(view.request_id, None)
        if view.grammar is None:
            return NO_DRAFT
        token_ids, kinds = self._draft_after(view, view.grammar, [], view.num_draft_tokens)
        if not token_ids:
            return NO_DRAFT
        self.kinds[view.request_id] = kinds
        return Draft(token_ids)

    def _draft_after(
        self, view: RequestView, state: GrammarState, before: list[int], most: int
    ) -> tuple[list[int], list[Kind]]:
        """Drafts after a text and the tokens `before`, which the state has taken; returns tokens and kinds."""
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
        return draft.token_ids[:valid], draft.kinds[:valid]
