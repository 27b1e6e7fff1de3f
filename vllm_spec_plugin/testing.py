"""Checks a proposer against the contract: its section of a plugin.yaml, and its drafts.

For tests, of the plugin's proposers and of other distributions':

    def test_the_contract():
        check_contract({"method": "mine", "some_key": 3})
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vllm_spec_plugin.config import ConfigError, parse_config
from vllm_spec_plugin.proposers.base import Draft, Proposer, RequestView
from vllm_spec_plugin.proposers.guard import are_sound, check_draft
from vllm_spec_plugin.proposers.registry import create_proposer
from vllm_spec_plugin.proposers.section import ProposerConfig
from vllm_spec_plugin.verification.draft_probs import SparseProbs

_SIBLINGS = 64
# Draws of the first token; its frequency is off by more than 5 standard errors with probability below 1e-6.
_DRAWS, _ERRORS = 400, 5
_SEEDS = 8


class ContractError(AssertionError):
    """A proposer violates the contract; str() is the violation."""


@dataclass(frozen=True)
class Worker:
    """Stands in for the worker, for proposers that keep KV or use hidden states.

    Attributes:
        engine: argument `engine` of `ProposerConfig.create`.
        create: builds the proposer, in place of `ProposerConfig.create`.
        show: completes the views of a step like a worker, with KV slots and hidden states.
    """

    engine: Any = None
    show: Callable[[Sequence[RequestView]], list[RequestView]] = list
    create: Callable[[ProposerConfig, int, int, Any], Proposer] = create_proposer


def check_contract(
    section: Mapping[str, Any], vocab_size: int = 100, num_tokens: int = 6, worker: Callable[[], Worker] = Worker
) -> None:
    """Checks everything that the contract says of one configuration of a proposer.

    Args:
        section: the section `proposer`.
        vocab_size: size of the target's vocabulary.
        num_tokens: maximum tokens of a draft.
        worker: creates a stand-in for the worker; called for each new proposer.

    Raises:
        ContractError: the proposer violates the contract.
    """
    config = _check_config(dict(section), num_tokens)
    if config.drafts_trees:
        _check_tree_order(config, num_tokens)
    check = _Check(config, vocab_size, num_tokens, worker)
    for part in (
        check.drafts_are_sound,
        check.drafts_are_a_function_of_the_request,
        check.growing_texts_are_caught_up_with,
        check.private_texts_stay_private,
        check.draws_follow_q,
    ):
        part()


def _must(holds: bool, text: str) -> None:
    if not holds:
        raise ContractError(text)


def _check_config(section: dict[str, Any], num_tokens: int) -> ProposerConfig:
    data = {"proposer": section, "draft_length": {"policy": "fixed", "tokens": num_tokens}}
    try:
        config = parse_config(data, "section")
    except ConfigError as error:
        raise ContractError(f"its section is refused: {error}") from error
    try:
        sent = parse_config(config.model_dump(mode="json"), "section")
    except ConfigError as error:
        raise ContractError(f"its section is refused after a JSON round trip: {error}") from error
    _must(sent == config, "its section changes in a JSON round trip")
    [proposer] = config.proposers
    for key, field in type(proposer).model_fields.items():
        _must(bool(field.description), f"its key {key} has no description")
        _must(not hasattr(ProposerConfig, key), f"its key {key} shadows the contract's {key}")
    _must(proposer.keeps_kv == (proposer.draft_weights is not None), "keeps_kv and draft_weights disagree")
    unknown = "no_such_key_of_any_method"
    try:
        parse_config({**data, "proposer": {**section, unknown: 1}}, "section")
    except ConfigError as error:
        _must(unknown in str(error), f"the message about an unknown key does not name it: {error}")
    else:
        raise ContractError("its section accepts unknown keys")
    return proposer


def _check_tree_order(config: ProposerConfig, num_tokens: int) -> None:
    parents = config.tree_order(num_tokens)
    _must(all(-1 <= parent < node for node, parent in enumerate(parents)), "tree_order: a child before its parent")
    _must(len(parents) <= num_tokens, f"tree_order: {len(parents)} nodes where {num_tokens} are the most")


class _Check:
    def __init__(self, config: ProposerConfig, vocab_size: int, num_tokens: int, worker: Callable[[], Worker]) -> None:
        self._config, self._vocab_size, self._num_tokens = config, vocab_size, num_tokens
        self._worker = worker
        rng = np.random.default_rng(0)
        repeated = rng.integers(0, vocab_size, 8)
        self._texts = {
            "repeating": np.tile(repeated, 5),
            "repeating later": np.concatenate([rng.integers(0, vocab_size, 20), np.tile(repeated[:5], 3)]),
            "random": rng.integers(0, vocab_size, 30),
            "short": rng.integers(0, vocab_size, 2),
        }

    def drafts_are_sound(self) -> None:
        for count in {1, 2, self._num_tokens}:
            step = self._step()
            shallow = {"depth": 1} if self._config.drafts_trees else {}
            for changes in ({}, {"point_mass": True}, {"chain_only": True}, shallow):
                views = [self._view(name, count, **changes) for name in self._texts]
                for view, draft in zip(views, step(views), strict=True):
                    self._is_sound(view, draft)

    def drafts_are_a_function_of_the_request(self) -> None:
        views = [self._view(name) for name in self._texts]
        step = self._step()
        drafts = step(views)
        self._same(drafts, self._step()(views), "a new proposer drafts otherwise from the same requests")
        self._same(drafts[::-1], self._step()(views[::-1]), "a draft depends on the order of the requests")
        alone = [draft for view in views for draft in self._step()([view])]
        self._same(drafts, alone, "a draft depends on the other requests")
        for view in views:
            step.proposer.forget(view.request_id)
        step.proposer.forget("a request that was never shown")
        self._same(drafts, step(views), "a request drafts otherwise after it was forgotten")
        for seed in range(_SEEDS):
            others = self._step()([view._replace(**self._randomness(seed, len(view.uniforms))) for view in views])
            for draft, other in zip(drafts, others, strict=True):
                _must(bool(draft.token_ids) == bool(other.token_ids), "whether it has a guess depends on its draws")
                _must(draft.tree == other.tree, "the tree of a draft depends on its draws")

    def growing_texts_are_caught_up_with(self) -> None:
        step = self._step()
        for end in (10, 11, 13, 20, 24):
            views = [self._view(name, end=end) for name in self._texts]
            drafts = step(views)
            self._same(drafts, self._step()(views), "a text that grew drafts otherwise than one shown whole")

    def private_texts_stay_private(self) -> None:
        views = [self._view(name, scope=None) for name in self._texts]
        step = self._step()
        step(views[:1])
        finish = getattr(step.proposer, "finish", step.proposer.forget)
        finish(views[0].request_id)
        finish("a request that was never shown")
        self._same(step(views[1:]), self._step()(views[1:]), "a private text that ended reaches other requests' drafts")

    def draws_follow_q(self) -> None:
        """Samples the first token of one request many times, and compares its frequencies with q."""
        view = self._view("repeating", 1)
        step = self._step()
        counts, q = np.zeros(self._vocab_size), None
        for seed in range(_DRAWS):
            [draft] = step([view._replace(**self._randomness(seed, 1))])
            if draft.probs is None:
                return
            q = self._first_row(draft) if q is None else q
            _must(bool(np.allclose(q, self._first_row(draft), atol=1e-5)), "q of the first token depends on its draws")
            counts[draft.token_ids[0]] += 1
        if q is not None:
            most = _ERRORS * np.sqrt(q * (1 - q) / _DRAWS) + 1 / _DRAWS
            _must(bool((abs(counts / _DRAWS - q) <= most).all()), "drawn tokens are not distributed as q says")

    def _step(self) -> "_Step":
        worker = self._worker()
        return _Step(worker.create(self._config, self._num_tokens, self._vocab_size, worker.engine), worker)

    def _view(self, name: str, count: int | None = None, end: int | None = None, **changes: Any) -> RequestView:
        count = self._num_tokens if count is None else count
        text = self._texts[name][:end].astype(np.int32)
        text.flags.writeable = False
        seed = len(name)
        return RequestView(
            **{
                "request_id": name,
                "token_ids": text,
                "num_draft_tokens": count,
                "depth": count,
                **self._randomness(seed, count),
                **changes,
            }
        )

    def _randomness(self, seed: int, count: int) -> dict[str, Any]:
        siblings = np.random.default_rng(seed).random((count, _SIBLINGS))
        return {"uniforms": siblings[:, 0].copy(), "sibling_uniforms": siblings}

    def _is_sound(self, view: RequestView, draft: Draft) -> None:
        try:
            sound = check_draft(draft, view, self._vocab_size)
        except Exception as error:
            raise ContractError(f"an unsound draft: {error}") from error
        _must(not (view.point_mass and draft.probs is not None), "the draft has q although point_mass is set")
        if sound.probs is not None:
            _must(are_sound([sound.probs], self._vocab_size), "q is not a distribution over the vocabulary")

    def _same(self, drafts: Sequence[Draft], others: Sequence[Draft], text: str) -> None:
        for draft, other in zip(drafts, others, strict=True):
            _must(list(draft.token_ids) == list(other.token_ids) and draft.tree == other.tree, text)
            _must((draft.probs is None) == (other.probs is None), text)
            if draft.probs is not None and draft.token_ids:
                close = np.allclose(self._first_row(draft), self._first_row(other), atol=1e-5)
                _must(bool(close), f"{text}: its q")

    def _first_row(self, draft: Draft) -> np.ndarray[Any, Any]:
        """[vocab_size]: q of the draft's first token."""
        probs = draft.probs
        if isinstance(probs, SparseProbs):
            row = torch.zeros(self._vocab_size, dtype=torch.float64)
            row.scatter_add_(0, probs.token_ids[0].long(), probs.probs[0].double())
            return row.numpy()
        assert probs is not None
        return probs[0].double().numpy()


class _Step:
    """A proposer with what stands in for its worker."""

    def __init__(self, proposer: Proposer, worker: Worker) -> None:
        self.proposer = proposer
        self._show = worker.show

    def __call__(self, requests: Sequence[RequestView]) -> list[Draft]:
        before = [request.token_ids.copy() for request in requests]
        drafts = self.proposer.propose(self._show(requests))
        _must(len(drafts) == len(requests), f"{len(drafts)} drafts for {len(requests)} requests")
        for request, text in zip(requests, before, strict=True):
            _must(bool((request.token_ids == text).all()), "it changed the text of a request")
        return drafts
