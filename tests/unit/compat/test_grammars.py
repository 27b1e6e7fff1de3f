"""Drafts with the real back ends of structured output, and grammars that stay as they are."""

import contextlib
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.tokenizers import get_tokenizer
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_outlines import OutlinesBackend
from vllm.v1.structured_output.backend_types import StructuredOutputOptions as Options
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend
from vllm.v1.structured_output.utils import choice_as_grammar

from vllm_spec_plugin.compat.grammars import Grammars, refuses_tokens_after_end
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.grammar.proposer import GrammarProposer
from vllm_spec_plugin.proposers.grammar.state import Kind

BACKENDS: dict[str, Any] = {"xgrammar": XgrammarBackend, "guidance": GuidanceBackend, "outlines": OutlinesBackend}
K = 12
SETTINGS = SimpleNamespace(
    structured_outputs_config=SimpleNamespace(disable_any_whitespace=False, disable_additional_properties=False),
    model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="llama")),
    speculative_config=SimpleNamespace(num_speculative_tokens=K),
)
SCHEMA = {
    "type": "object",
    "properties": {
        "customer_name": {"type": "string"},
        "priority": {"enum": ["priority_low", "priority_high"]},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"amount": {"type": "integer"}, "is_paid": {"type": "boolean"}},
                "required": ["amount", "is_paid"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["customer_name", "priority", "lines"],
    "additionalProperties": False,
}
VALUE = {
    "customer_name": "Zo\u00eb",
    "priority": "priority_high",
    "lines": [{"amount": 41, "is_paid": True}, {"amount": 7, "is_paid": False}],
}
CHOICES = ["delivered to the customer", "delivered to a neighbour", "lost"]
EBNF = 'root ::= "SELECT " column " FROM orders WHERE " column " = 1"\ncolumn ::= "amount" | "customer_name"'
REGEX = r"order-[0-9]{4}: (shipped|sent back) to the warehouse"
# Per case, a kind of grammar, its text, and a text that it accepts.
CASES: dict[str, tuple[Options, str, str]] = {
    "json": (Options.JSON, json.dumps(SCHEMA), json.dumps(VALUE, ensure_ascii=False)),
    "json on lines": (Options.JSON, json.dumps(SCHEMA), json.dumps(VALUE, ensure_ascii=False, indent=2)),
    "regex": (Options.REGEX, REGEX, "order-1234: sent back to the warehouse"),
    "ebnf": (Options.GRAMMAR, EBNF, "SELECT amount FROM orders WHERE customer_name = 1"),
    "choice": (Options.CHOICE, json.dumps(CHOICES), CHOICES[1]),
}
# What outlines has no form of; its regex of JSON has no lines.
NOT_OUTLINES = ("ebnf", "json on lines")
PAIRS = [(backend, case) for backend in BACKENDS for case in CASES if backend != "outlines" or case not in NOT_OUTLINES]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return get_tokenizer(str(model_path("target")))


class Served:
    """A request with a grammar, as vLLM's scheduler has it."""

    def __init__(self, backend: str, kind: Options, text: str, tokenizer: Any, settings: Any = SETTINGS) -> None:
        if kind is Options.CHOICE and backend == "xgrammar":
            kind, text = Options.GRAMMAR, choice_as_grammar(json.loads(text))
        elif kind is Options.GRAMMAR and backend == "guidance":
            text = "start: " + text.partition("root ::= ")[2].replace("::=", ":")
        self.tokenizer, made = tokenizer, BACKENDS[backend](settings, tokenizer, len(tokenizer))
        self.grammar = made.compile_grammar(kind, text)
        self.start = 0
        manager: Any = SimpleNamespace(
            backend=made,
            tokenizer=tokenizer,
            _get_constraint_bounds=lambda *_: SimpleNamespace(constraint_start=self.start),
        )
        self.grammars = Grammars(manager)
        self.request: Any = SimpleNamespace(
            request_id="a",
            structured_output_request=SimpleNamespace(grammar=self.grammar),
            sampling_params=SimpleNamespace(eos_token_id=0, all_stop_token_ids={0}),
        )
        self.proposer = GrammarProposer(self.grammars.tokenizer, len(tokenizer), lambda: 0.0)
        self.output: list[int] = []

    def mask(self) -> list[int]:
        mask = self.grammars.mask().clone()
        self.grammar.fill_bitmask(mask, 0)
        return list(mask[0].tolist())

    def take(self, tokens: list[int]) -> None:
        assert self.grammar.accept_tokens("a", tokens)
        self.output += tokens

    def draft(self) -> tuple[list[int], Sequence[int]]:
        state = self.grammars.of(self.request)
        token_ids = np.array(self.output, np.int32)
        [draft] = self.proposer.propose([RequestView("a", token_ids, K, np.zeros(K), grammar=state)])
        return draft.token_ids, draft.kinds


@pytest.mark.parametrize(("backend", "case"), PAIRS)
def test_drafts_are_allowed_and_grammars_stay_as_they_are(backend: str, case: str, tokenizer: Any) -> None:
    """The output is a text that the grammar accepts; each step takes the accepted draft tokens and one more."""
    kind, text, output = CASES[case]
    served = Served(backend, kind, text, tokenizer)
    token_ids = [*tokenizer.encode(output, add_special_tokens=False), 0]
    served.take(token_ids[:1])
    num_steps, reached, accepted = 1, dict.fromkeys(Kind, 0), dict.fromkeys(Kind, 0)
    while len(served.output) < len(token_ids):
        before = served.mask()
        draft, kinds = served.draft()
        assert served.mask() == before
        assert served.grammar.validate_tokens(draft) == draft
        assert len(kinds) == len(draft)
        start = len(served.output)
        for token, drafted_as in zip(draft, kinds, strict=True):
            if drafted_as == Kind.FORCED:
                allowed = {32 * i + bit for i, word in enumerate(served.mask()) for bit in range(32) if word >> bit & 1}
                assert allowed == {token}
            reached[Kind(drafted_as)] += 1
            if token != token_ids[len(served.output)]:
                break
            accepted[Kind(drafted_as)] += 1
            served.take([token])
        if len(served.output) < len(token_ids):
            served.take([token_ids[len(served.output)]])
        num_steps += 1
        assert len(served.output) > start
    assert served.grammars.of(served.request) is None
    assert accepted[Kind.FORCED] == reached[Kind.FORCED]
    assert sum(accepted.values()) >= 0.4 * len(token_ids)
    assert sum(accepted.values()) >= 0.8 * sum(reached.values())


@pytest.mark.parametrize(("backend", "case"), PAIRS)
def test_a_fault_or_a_late_draft_leaves_the_grammar_as_it_is(
    backend: str, case: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, text, output = CASES[case]
    served = Served(backend, kind, text, tokenizer)
    token_ids = tokenizer.encode(output, add_special_tokens=False)
    for end in range(1, len(token_ids), 4):
        served.take(token_ids[len(served.output) : end])
        before = served.mask()
        for num_calls in range(1, 6):
            ticks = iter([0.0] * num_calls + [1.0] * 99)
            served.proposer._clock = lambda ticks=ticks: next(ticks)  # type: ignore[misc]
            draft, _ = served.draft()
            assert served.grammar.validate_tokens(draft) == draft
            assert served.mask() == before
            served.proposer._clock = lambda: 0.0
            state = served.grammars.of(served.request)
            assert state is not None
            with monkeypatch.context() as patch:
                break_after(patch, type(state), num_calls)
                with contextlib.suppress(RuntimeError):
                    served.draft()
            assert served.mask() == before
    served.take(token_ids[len(served.output) :])


def break_after(patch: pytest.MonkeyPatch, kind: type, num_calls: int) -> None:
    """Makes the adapter raise in a later call of what a draft takes."""
    for name in ("accept_text", "accept_token"):
        whole, left = getattr(kind, name), [num_calls]

        def fail(self: Any, given: Any, whole: Any = whole, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                raise RuntimeError("a fault of the back end")
            return whole(self, given)

        patch.setattr(kind, name, fail)


def test_guidance_refuses_what_follows_the_end_in_a_step(tokenizer: Any) -> None:
    """With drafts a step may have such tokens, if the request ignores the end. xgrammar's grammar takes them."""
    for backend, is_taken in (("guidance", False), ("xgrammar", True)):
        served = Served(backend, *CASES["choice"][:2], tokenizer)
        token_ids = tokenizer.encode(CHOICES[1], add_special_tokens=False)
        assert served.grammar.accept_tokens("a", [*token_ids, 0, 5]) == is_taken
        params = SamplingParams(structured_outputs=StructuredOutputsParams(choice=CHOICES), ignore_eos=True)
        assert params.structured_outputs is not None
        params.structured_outputs._backend = backend
        assert refuses_tokens_after_end(params) is not is_taken
        params.ignore_eos = False
        assert not refuses_tokens_after_end(params)
    assert not refuses_tokens_after_end(SamplingParams(ignore_eos=True))


def test_there_is_no_grammar_where_it_does_not_constrain_the_next_token(tokenizer: Any) -> None:
    served = Served("xgrammar", Options.REGEX, "abc", tokenizer)
    assert served.grammars.of(served.request) is not None
    served.start = 1
    assert served.grammars.of(served.request) is None
    served.start = 0
    for grammar in (None, ValueError("it cannot be compiled")):
        served.request.structured_output_request.grammar = grammar
        assert served.grammars.of(served.request) is None
    served.request.structured_output_request = None
    assert served.grammars.of(served.request) is None
