"""Every proposer, the plugin's or another distribution's, passes the contract check; broken ones do not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from pydantic import Field

from tests.third_party import find, install_example
from tests.unit.proposers.grammar.states import Texts, byte_level
from vllm_spec_plugin.proposers import registry
from vllm_spec_plugin.proposers.base import NO_DRAFT, Draft, RequestView
from vllm_spec_plugin.proposers.grammar import proposer
from vllm_spec_plugin.proposers.section import ProposerConfig
from vllm_spec_plugin.testing import ContractError, Worker, check_contract


def predicting_worker() -> Worker:
    """Requests that predict their first tokens to come again."""
    return Worker(None, lambda views: [view._replace(prediction=view.token_ids[:8].tolist()) for view in views])


def constrained_worker() -> Worker:
    """Requests whose grammars force a text."""
    tokenizer = byte_level()

    def show(views: Sequence[RequestView]) -> list[RequestView]:
        return [view._replace(grammar=Texts(["the name of the city"], tokenizer, "the")) for view in views]

    return Worker(tokenizer, show)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lookup": ({"method": "ngram", "min_order": 1}, {}),
    "shared": ({"method": "ngram", "shared": True}, {}),
    "frequency": ({"method": "ngram", "mode": "frequency", "min_order": 1}, {}),
    "suffix": ({"method": "suffix"}, {}),
    "suffix, shared": ({"method": "suffix", "shared": True, "shared_tokens": 1024}, {}),
    "prediction": ({"method": "prediction"}, {"worker": predicting_worker}),
    "grammar": ({"method": "grammar"}, {"worker": constrained_worker, "vocab_size": 340}),
    "third party": ({"method": "bigram", "window": 64}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_proposer_keeps_the_contract(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section, keys = CASES[name]
    if section["method"] == "bigram":
        find(install_example(tmp_path), monkeypatch)
    # On a busy machine time would be up in the middle of a draft.
    monkeypatch.setattr(proposer, "SECONDS", 10.0)
    check_contract(section, **keys)


class Sound:
    """Drafts the newest token again and again."""

    def __init__(self, config: Any = None, vocab_size: int = 0) -> None:
        self.seen: dict[str, int] = {}
        self.vocab_size = vocab_size

    def propose(self, requests):
        return [self.draft(request) for request in requests]

    def draft(self, request):
        return Draft([int(request.token_ids[-1])] * request.num_draft_tokens)

    def forget(self, request_id):
        self.seen.pop(request_id, None)


class Drawing(Sound):
    """Draws one of two tokens, and says so."""

    q = 0.3

    def draft(self, request):
        if request.point_mass:
            return Draft([1])
        probs = torch.zeros(1, self.vocab_size)
        probs[0, 1], probs[0, 2] = self.q, 1 - self.q
        return Draft([1 if request.uniforms[0] < 0.3 else 2], probs)


def counted(self, request):
    self.seen[request.request_id] = self.seen.get(request.request_id, 0) + 1
    return Draft([self.seen[request.request_id]])


def late(self, request):
    draft, self.last = Draft([self.last]), int(request.token_ids[-1])
    return draft


def overwrite(self, request):
    request.token_ids[0] = 1
    return NO_DRAFT


def note_end(self, request_id):
    self.ended = request_id


def toy_of(draft, of=Sound, **more):
    return type("Toy", (of,), {"draft": draft, **more})


BROKEN: dict[str, tuple[type, str]] = {
    "too many": (toy_of(lambda self, request: Draft([1] * (request.num_draft_tokens + 1))), "an unsound draft: "),
    "beyond vocabulary": (toy_of(lambda self, request: Draft([self.vocab_size])), "an unsound draft: "),
    "counting": (
        toy_of(counted, forget=lambda self, request_id: None),
        "a request drafts otherwise after it was forgotten",
    ),
    "leaking": (toy_of(late, last=0), "a draft depends on the order of the requests"),
    "leaking later": (
        toy_of(lambda self, request: Draft([len(self.ended)]), ended="", finish=note_end),
        "a private text that ended reaches other requests' drafts",
    ),
    "stale": (
        toy_of(lambda self, request: Draft([self.seen.setdefault(request.request_id, len(request.token_ids))])),
        "a text that grew drafts otherwise than one shown whole",
    ),
    "guess by draw": (
        toy_of(lambda self, request: Sound.draft(self, request) if request.uniforms[0] < 0.5 else NO_DRAFT),
        "whether it has a guess depends on its draws",
    ),
    "wrong q": (type("Toy", (Drawing,), {"q": 0.45}), "drawn tokens are not distributed as q says"),
    "no point mass": (
        toy_of(lambda self, request: Drawing.draft(self, request._replace(point_mass=False)), Drawing),
        "the draft has q although point_mass is set",
    ),
    "silent": (toy_of(None, propose=lambda self, requests: []), "0 drafts for 4 requests"),
}


class ToyConfig(ProposerConfig):
    """Makes whatever proposer a test wants."""

    method: Literal["toy"] = Field(description="The method of drafting.")

    def create(self, num_tokens, vocab_size, engine):
        return engine(self, vocab_size)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> type[ToyConfig]:
    """A registered method, whose engine is the class of its proposer."""
    monkeypatch.setattr(registry, "_entry_points", lambda: {"toy": []})
    monkeypatch.setattr(registry, "_load", lambda method: ToyConfig)
    return ToyConfig


@pytest.mark.parametrize("kind", [Sound, Drawing])
def test_sound_toys_pass(kind: type, toy: object) -> None:
    check_contract({"method": "toy"}, worker=lambda: Worker(kind))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_proposers_are_caught(name: str, toy: object) -> None:
    kind, text = BROKEN[name]
    with pytest.raises(ContractError) as caught:
        check_contract({"method": "toy"}, worker=lambda: Worker(kind))
    assert str(caught.value).startswith(text)


def test_a_proposer_can_not_change_a_text(toy: object) -> None:
    with pytest.raises(ValueError, match="read-only"):
        check_contract({"method": "toy"}, worker=lambda: Worker(toy_of(overwrite)))
