"""Proposers with models of the plugin's pass the contract check."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.proposers.medusa.folders import HIDDEN, VOCABULARY, random_state, write
from tests.v1.proposers.draft_model.pool import Request
from tests.v1.proposers.draft_model.table_model import VOCAB_SIZE as TABLE_VOCABULARY
from tests.v1.proposers.draft_model.table_model import Scene
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.testing import Worker, check_contract
from vllm_spec_plugin.v1.proposers.create import create_proposer

DRAFT = {"method": "draft_model", "model": str(model_path("draft"))}


def table_worker() -> Worker:
    """A table in place of a draft model, and blocks for requests."""
    scene, served = Scene(), dict[str, Request]()

    def show(views):
        for view in views:
            request = served.setdefault(view.request_id, Request(view.request_id, []))
            request.text, request.k = view.token_ids.tolist(), view.num_draft_tokens
        shown = scene.show([served[view.request_id] for view in views])
        return [view._replace(row=own.row, num_slots=own.num_slots) for view, own in zip(views, shown, strict=True)]

    return Worker(scene.engine, show, create_proposer)


def eagle3_worker() -> Worker:
    """As for a draft model, of which all hidden states are kept."""
    worker = table_worker()
    worker.engine.states = SimpleNamespace(
        span=lambda request_id: (0, sys.maxsize),
        forget=lambda request_id: None,
        drop_before=lambda request_id, position: None,
    )

    def show(views):
        # The head does not see the first token.
        shown = worker.show(views)
        return [view._replace(token_ids=np.append(np.int32(0), view.token_ids)) for view in shown]

    return Worker(worker.engine, show, create_proposer)


def heads_worker() -> Worker:
    """Hidden states that depend on the text alone."""
    engine = SimpleNamespace(hidden_size=HIDDEN, dtype=torch.float32, device="cpu")
    engine.constrain = lambda logits, rows: logits.float()

    def show(views):
        states = (torch.Generator().manual_seed(int(view.token_ids.sum())) for view in views)
        return [
            view._replace(row=row, hidden=torch.randn(HIDDEN, generator=state))
            for row, (view, state) in enumerate(zip(views, states, strict=True))
        ]

    return Worker(engine, show, create_proposer)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "draft model": (DRAFT, {"worker": table_worker, "vocab_size": TABLE_VOCABULARY}),
    "greedy draft model": (
        {**DRAFT, "draft_sampling": "greedy"},
        {"worker": table_worker, "vocab_size": TABLE_VOCABULARY},
    ),
    "eagle3": (
        {"method": "eagle3", "model": str(model_path("eagle3"))},
        {"worker": eagle3_worker, "vocab_size": TABLE_VOCABULARY},
    ),
    "heads": ({"method": "medusa"}, {"num_tokens": 3}),
    "drawn tree": ({"method": "medusa", "tree": [[0], [1], [0, 0]], "draft_sampling": "probabilistic"}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_proposer_keeps_the_contract(name: str, tmp_path: Path) -> None:
    section, keys = CASES[name]
    if section["method"] == "medusa":
        heads = write(tmp_path, random_state(), {"medusa_num_heads": 3, "medusa_num_layers": 1})
        section, keys = {**section, "model": heads}, {"worker": heads_worker, "vocab_size": VOCABULARY, **keys}
    check_contract(section, **keys)
