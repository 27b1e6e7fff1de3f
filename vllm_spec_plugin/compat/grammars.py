"""The grammars of requests' structured outputs, one adapter per back end of vLLM."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.backend_guidance import GuidanceGrammar
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar
from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

# Texts whose tokens are kept.
_CACHED = 4096


def refuses_tokens_after_end(params: SamplingParams) -> bool:
    """Whether vLLM ends a request with an error if a step gives it tokens after the end of its grammar."""
    structured = params.structured_outputs
    # Only then tokens follow. xgrammar and outlines let them.
    return structured is not None and params.ignore_eos and structured._backend == "guidance"


class Tokenizer:
    """The target's tokenizer, as vLLM has it."""

    def __init__(self, tokenizer: Any) -> None:
        """Wraps vLLM's tokenizer.

        Args:
            tokenizer: one of vLLM's `TokenizerLike`; None is a server without, which has no structured outputs.
        """
        self._tokenizer = tokenizer
        # Without the checks of the outer class, which take 5 times as long.
        self._fast = getattr(tokenizer, "backend_tokenizer", None)

    def encode(self, text: str) -> list[int]:
        """Tokenizes a text, without tokens before or after it."""
        fast = self._fast
        found = fast.encode(text, add_special_tokens=False).ids if fast else self._tokenizer.encode(text, False)
        return list(found)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of tokens."""
        found: str = (self._fast or self._tokenizer).decode(token_ids)
        return found

    def pieces(self) -> Mapping[str, int]:
        """Returns the ids of all tokens but special ones, by the vocabulary's form of their text."""
        if self._tokenizer is None:
            return {}
        special = set(self._tokenizer.all_special_ids)
        return {piece: token for piece, token in self._tokenizer.get_vocab().items() if token not in special}


class Grammars:
    """Finds the grammars from which requests' drafts can be made.

    Attributes:
        tokenizer: the target's tokenizer.
    """

    def __init__(self, manager: StructuredOutputManager) -> None:
        """Reads nothing yet: vLLM creates its back end with the first structured request.

        Args:
            manager: the scheduler's.
        """
        self._manager = manager
        self.tokenizer = Tokenizer(getattr(manager, "tokenizer", None))
        self._mask: torch.Tensor | None = None
        self._encode: Callable[[str], list[int]] | None = None

    def of(self, request: Request) -> "MaskedGrammar | None":
        """Returns a request's grammar, to draft from.

        Returns:
            None without structured output, before the grammar is compiled, and where it does not constrain the next
            token: after its end, and while the request reasons.
        """
        wanted = request.structured_output_request
        if wanted is None:
            return None
        grammar = wanted.grammar
        if not isinstance(grammar, StructuredOutputGrammar) or grammar.is_terminated():
            return None
        # vLLM takes tokens only once reasoning has ended.
        if self._manager._get_constraint_bounds(request, ()).constraint_start:
            return None
        if isinstance(grammar, XgrammarGrammar):
            return XgrammarState(self, request, grammar)
        if isinstance(grammar, GuidanceGrammar):
            # vLLM takes no draft once llguidance has stopped.
            return None if grammar.ll_matcher.is_stopped() else GuidanceState(self, request, grammar)
        return MaskedGrammar(self, request, grammar)

    def encoder(self, tokenizer: Any) -> Callable[[str], list[int]]:
        """Returns the function from texts to tokens of llguidance's tokenizer, which remembers them."""
        if self._encode is None:
            self._encode = functools.lru_cache(_CACHED)(tokenizer.tokenize_str)
        return self._encode

    def mask(self) -> torch.Tensor:
        """Returns a bitmask of one row, [1, any] int32, to write into."""
        if self._mask is None:
            backend = self._manager.backend
            assert backend is not None, "it has compiled the grammar"
            self._mask = backend.allocate_token_bitmask(1)
        return self._mask


class MaskedGrammar:
    """A grammar of any back end: its bitmask, one token after the other. Implements `GrammarState`."""

    reads_text = False

    def __init__(self, grammars: Grammars, request: Request, grammar: Any) -> None:
        """Takes the grammar as it is.

        Args:
            grammars: has what the requests share.
            request: the request.
            grammar: its grammar.
        """
        self._grammars, self._request, self._grammar = grammars, request, grammar

    @property
    def stop_token_ids(self) -> Sequence[int]:
        """Tokens that end the request's text: the model's usual one first."""
        params = self._request.sampling_params
        assert params is not None, "its output is structured"
        usual = params.eos_token_id
        return sorted(params.all_stop_token_ids, key=lambda token: (token != usual, token))

    def forced_text(self) -> str:
        """Returns nothing: the back end does not know."""
        return ""

    def allows(self, text: str) -> bool:
        """Refuses all: the back end takes tokens only."""
        return False

    def accept_text(self, text: str) -> bool:
        """Refuses all: the back end takes tokens only."""
        return False

    def accept_token(self, token_id: int) -> bool:
        """See `GrammarState`."""
        is_accepted: bool = self._grammar.accept_tokens(self._request.request_id, [token_id])
        return is_accepted

    def undo(self, num_steps: int) -> None:
        """See `GrammarState`."""
        self._grammar.rollback(num_steps)

    def is_complete(self) -> bool:
        """Whether a stop token is allowed."""
        mask = self._filled()
        return any(mask[token >> 5] >> (token & 31) & 1 for token in self.stop_token_ids if token >> 5 < len(mask))

    def allowed(self, most: int) -> list[int]:
        """See `GrammarState`."""
        mask = self._filled()
        [words] = mask.nonzero()
        if len(words) > most or int(np.bitwise_count(mask[words]).sum()) > most:
            return []
        bits = ((int(word) * 32, int(mask[word])) for word in words)
        return [first + bit for first, word in bits for bit in range(32) if word >> bit & 1]

    def _filled(self) -> npt.NDArray[np.uint32]:
        """Returns [any] uint32, a bit per token."""
        mask = self._grammars.mask()
        self._grammar.fill_bitmask(mask, 0)
        return mask.numpy()[0].view(np.uint32)


class XgrammarState(MaskedGrammar):
    """A grammar of xgrammar. Texts are taken and rolled back: a fork takes time in proportion to the output."""

    reads_text = True

    def __init__(self, grammars: Grammars, request: Request, grammar: XgrammarGrammar) -> None:
        """See `MaskedGrammar`."""
        super().__init__(grammars, request, grammar)
        self._matcher = grammar.matcher

    def forced_text(self) -> str:
        """See `GrammarState`."""
        try:
            return self._matcher.find_jump_forward_string()
        except UnicodeDecodeError:
            # It begins or ends within a character.
            return ""

    def allows(self, text: str) -> bool:
        """See `GrammarState`."""
        matcher = self._matcher
        if not matcher.accept_string(text):
            return False
        matcher.rollback(1)
        return True

    def accept_text(self, text: str) -> bool:
        """See `GrammarState`."""
        return self._matcher.accept_string(text)

    def accept_token(self, token_id: int) -> bool:
        """See `GrammarState`."""
        return self._matcher.accept_token(token_id)

    def undo(self, num_steps: int) -> None:
        """See `GrammarState`."""
        self._matcher.rollback(num_steps)

    def is_complete(self) -> bool:
        """See `GrammarState`."""
        return self._matcher.is_completed()


class GuidanceState(MaskedGrammar):
    """A grammar of llguidance, which knows forced bytes and takes tokens."""

    reads_text = True

    def __init__(self, grammars: Grammars, request: Request, grammar: GuidanceGrammar) -> None:
        """See `MaskedGrammar`."""
        super().__init__(grammars, request, grammar)
        self._matcher, self._encode = grammar.ll_matcher, grammars.encoder(grammar.ll_tokenizer)
        # Number of tokens of each step.
        self._steps: list[int] = []

    def forced_text(self) -> str:
        """See `GrammarState`."""
        forced: bytes = self._matcher.compute_ff_bytes()
        return forced.decode(errors="ignore")

    def allows(self, text: str) -> bool:
        """See `GrammarState`."""
        token_ids = self._encode(text)
        # Once it has stopped it takes any token.
        return not self._matcher.is_stopped() and self._matcher.validate_tokens(token_ids) == len(token_ids)

    def accept_text(self, text: str) -> bool:
        """See `GrammarState`."""
        return self._accept(self._encode(text))

    def accept_token(self, token_id: int) -> bool:
        """See `GrammarState`."""
        return self._accept([token_id])

    def undo(self, num_steps: int) -> None:
        """See `GrammarState`."""
        self._matcher.rollback(sum(self._steps[-num_steps:]))
        del self._steps[-num_steps:]

    def is_complete(self) -> bool:
        """See `GrammarState`."""
        is_complete: bool = self._matcher.is_accepting()
        return is_complete

    def _accept(self, token_ids: list[int]) -> bool:
        if self._matcher.is_stopped():
            return False
        num_accepted = self._matcher.try_consume_tokens(token_ids)
        if num_accepted < len(token_ids):
            self._matcher.rollback(num_accepted)
            return False
        self._steps.append(num_accepted)
        return True
