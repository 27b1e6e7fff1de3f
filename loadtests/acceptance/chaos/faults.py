"""Faults of a proposer: functions from its requests and drafts to a wrong result. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from vllm_spec_plugin.proposers.base import Draft, RequestView
from vllm_spec_plugin.verification.draft_probs import SparseProbs

Drafts = list[Draft]


def _raise(requests: Sequence[RequestView], drafts: Drafts) -> Drafts:
    raise RuntimeError("on purpose")


def _out_of_vocabulary(requests: Sequence[RequestView], drafts: Drafts) -> Drafts:
    return [Draft([2_000_000] * request.num_draft_tokens) for request in requests]


def _negative(requests: Sequence[RequestView], drafts: Drafts) -> Drafts:
    return [Draft([-1] * request.num_draft_tokens) for request in requests]


def _too_many(requests: Sequence[RequestView], drafts: Drafts) -> Drafts:
    return [Draft([1] * (request.num_draft_tokens + 3)) for request in requests]


def _float_tokens(requests: Sequence[RequestView], drafts: Drafts) -> Any:
    return [Draft(np.ones(request.num_draft_tokens)) for request in requests]  # type: ignore[arg-type]


def _nan_probs(requests: Sequence[RequestView], drafts: Drafts) -> Drafts:
    shapes = [(request.num_draft_tokens, 1) for request in requests]
    return [
        Draft([1] * shape[0], SparseProbs(torch.ones(shape, dtype=torch.int64), torch.full(shape, torch.nan)))
        for shape in shapes
    ]


def _too_few_drafts(requests: Sequence[RequestView], drafts: Drafts) -> Drafts:
    return drafts[:-1]


def _no_list(requests: Sequence[RequestView], drafts: Drafts) -> Any:
    return None


FAULTS: dict[str, Callable[[Sequence[RequestView], Drafts], Any]] = {
    "raise": _raise,
    "out_of_vocabulary": _out_of_vocabulary,
    "negative_token": _negative,
    "too_many_tokens": _too_many,
    "float_tokens": _float_tokens,
    "nan_probs": _nan_probs,
    "too_few_drafts": _too_few_drafts,
    "no_list": _no_list,
}
