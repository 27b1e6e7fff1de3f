"""The grammar proposer."""

import time
from collections.abc import Callable, Sequence

from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.grammar.from_masks import draft_tokens
from vllm_spec_plugin.proposers.grammar.from_text import draft_text
from vllm_spec_plugin.proposers.grammar.state import Kind, Tokenizer
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

    def _draft(self, view: RequestView) -> Draft:
        self.kinds.pop(view.request_id, None)
        state = view.grammar
        if state is None:
            return NO_DRAFT
        tokenization, clock, most = self._tokenization, self._clock, view.num_draft_tokens
        text, deadline = view.token_ids, clock() + SECONDS

        def is_late() -> bool:
            return clock() >= deadline

        if state.reads_text:

            def read() -> str:
                return tokenization.decode(text[max(view.num_prompt_tokens, len(text) - _NUM_READ) :].tolist())

            draft = draft_text(state, tokenization, int(text[-1]), read, most, is_late)
        else:
            draft = draft_tokens(state, tokenization, int(text[-1]), most, is_late)
        valid = next((i for i, token in enumerate(draft.token_ids) if token >= self._vocab_size), len(draft.token_ids))
        if not valid:
            return NO_DRAFT
        self.kinds[view.request_id] = draft.kinds[:valid]
        return Draft(draft.token_ids[:valid])
