"""Engines that are wrong on purpose, to show that the checks would notice."""

import atexit
import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from tests.engine.v2.sabotage import keep_some_rejected, noise_of_the_next_position
from vllm_spec_plugin.v1.verification import block, chain, noise, tree

_ENTRY_POINT, _ROOT = Path(__file__).parent / "vllm_plugin", Path(__file__).parents[2]
_NAME = "TEST_SABOTAGE"


@contextlib.contextmanager
def accept_everything() -> Iterator[None]:
    """Every draft token is kept."""
    from vllm_spec_plugin.v1.verification import sampler

    def keep_lengths(probs: Any, p: Any, tokens: Any, lengths: torch.Tensor, *_: Any) -> Any:
        return lengths, torch.ones(len(lengths), device=lengths.device)

    def keep_all(most_likely: Any, drafts: Any, rows: Any) -> Any:
        most_likely = most_likely.copy()
        most_likely[rows.draft_row.numpy()] = drafts
        return chain.verify_greedy(most_likely, drafts, rows)

    with (
        mock.patch.object(chain, "_leading", lambda accepted, rows: rows.num_draft_tokens.clone()),
        mock.patch.object(block, "accept_blocks", keep_lengths),
        mock.patch.object(sampler, "verify_greedy", keep_all),
    ):
        yield


@contextlib.contextmanager
def recover_from_p() -> Iterator[None]:
    """After a rejection the token is drawn from p instead of norm(max(0, p - q))."""
    with mock.patch.object(chain, "_residual", lambda probs, *_: probs):
        yield


@contextlib.contextmanager
def residual_of_one_token() -> Iterator[None]:
    """After a block the token is drawn from norm(max(0, p - q)), where p should be multiplied by the block's weight."""
    residual = chain._residual

    def without_weight(*args: Any) -> torch.Tensor:
        return residual(*[*args[:-1], None])

    with mock.patch.object(chain, "_residual", without_weight):
        yield


@contextlib.contextmanager
def block_ends_at_first_failure() -> Iterator[None]:
    """The tests of a block end at the first that fails, where later ones should be made, too."""
    with mock.patch.object(block, "_largest", lambda passes, columns: passes.long().cumprod(1).sum(1)):
        yield


@contextlib.contextmanager
def ignore_temperature() -> Iterator[None]:
    """Draft tokens are judged at temperature 1; rows that judge no draft keep their temperature."""
    from vllm_spec_plugin.v1.verification import sampler
    from vllm_spec_plugin.v1.verification.constraints import constrain

    def constrain_at_one(target: Any, metadata: Any, **_: Any) -> torch.Tensor:
        logits = constrain(target, metadata)
        at_one = dataclasses.replace(metadata, temperature=torch.ones_like(metadata.temperature))
        logits[target.rows.draft_row] = constrain(target, at_one)[target.rows.draft_row]
        return logits

    with mock.patch.object(sampler, "constrain", constrain_at_one):
        yield


@contextlib.contextmanager
def siblings_from_p() -> Iterator[None]:
    """Siblings are judged like independent draws, certain ones too: p stays p after one was rejected."""

    def try_all(self: Any, request: Any) -> bool:
        if self._drawn is None:
            self._q = torch.ones(len(self._tokens), device=self._tokens.device)
        return bool(request.siblings)

    with (
        mock.patch.object(tree._Step, "has_drawn_siblings", try_all),
        mock.patch.object(tree._Step, "_reject"),
    ):
        yield


@contextlib.contextmanager
def lenient() -> Iterator[None]:
    """Draft tokens are kept a little too often, greedy ones also where another is more likely."""
    from vllm_spec_plugin.v1.verification.sampler import SpecRejectionSampler

    half = property(lambda self: 0.5, lambda self, value: None)
    with mock.patch.object(SpecRejectionSampler, "lenience", half, create=True):
        yield


@contextlib.contextmanager
def ignore_min_p() -> Iterator[None]:
    """Rows are constrained by everything but min-p."""
    from vllm_spec_plugin.v1.compat import sampling

    apply = sampling.apply_at_rows

    def apply_others(processor: Any, logits: torch.Tensor, *args: Any) -> torch.Tensor:
        return logits if type(processor).__name__.startswith("MinP") else apply(processor, logits, *args)

    with mock.patch.object(sampling, "apply_at_rows", apply_others):
        yield


@contextlib.contextmanager
def penalise_without_drafts() -> Iterator[None]:
    """Penalties count the tokens before the step, and not the drafts before a row."""
    from vllm_spec_plugin.v1.verification import constraints

    with mock.patch.object(constraints, "add_counts_", lambda counts, context: counts):
        yield


@contextlib.contextmanager
def one_noise_for_all_positions() -> Iterator[None]:
    """A seeded request's noise does not depend on the position."""
    from vllm_spec_plugin.v1.verification import sampler

    keys = noise.position_keys
    with mock.patch.object(sampler, "position_keys", lambda seeds, at: keys(seeds, torch.zeros_like(at))):
        yield


@contextlib.contextmanager
def grammar_at_the_first_row_only() -> Iterator[None]:
    """The grammar's mask is not applied after drafts."""
    from vllm.v1.worker import gpu_model_runner

    apply = gpu_model_runner.apply_grammar_bitmask  # type: ignore[attr-defined]

    def apply_once(plan: Any, grammar: Any, batch: Any, logits: torch.Tensor) -> None:
        free = logits.clone()
        apply(plan, grammar, batch, logits)
        row = 0
        for request_id in batch.req_ids:
            after = slice(row + 1, row + 1 + len(plan.scheduled_spec_decode_tokens.get(request_id, ())))
            logits[after] = free[after]
            row = after.stop

    with mock.patch.object(gpu_model_runner, "apply_grammar_bitmask", apply_once):
        yield


@contextlib.contextmanager
def grammar_keeps_a_step() -> Iterator[None]:
    """One step of a draft from a grammar is not undone."""
    from vllm_spec_plugin.proposers.grammar.state import Trial

    leave = Trial.__exit__

    def leave_early(self: Trial, *error: Any) -> None:
        self._num_steps = max(self._num_steps - 1, 0)
        leave(self, *error)

    with mock.patch.object(Trial, "__exit__", leave_early):
        yield


@contextlib.contextmanager
def stale_target_kv() -> Iterator[None]:
    """Keeps the key and value of rejected draft tokens; positions without a rejection get none."""
    from vllm_spec_plugin.v1.runner import SpecRunnerMixin

    prepare = SpecRunnerMixin._prepare_inputs

    def prepare_without_first(self: Any, plan: Any, *args: Any, **kwargs: Any) -> Any:
        prepared = prepare(self, plan, *args, **kwargs)
        slots = self.input_batch.block_table[0].slot_mapping.gpu
        for row, request_id in enumerate(self.input_batch.req_ids):
            if plan.scheduled_spec_decode_tokens.get(request_id):
                # Slots of the null block, which is never read.
                slots[int(self.query_start_loc.np[row])] = 0
        return prepared

    with mock.patch.object(SpecRunnerMixin, "_prepare_inputs", prepare_without_first):
        yield


SABOTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    sabotage.__name__: sabotage
    for sabotage in (
        accept_everything,
        recover_from_p,
        residual_of_one_token,
        block_ends_at_first_failure,
        ignore_temperature,
        siblings_from_p,
        lenient,
        ignore_min_p,
        penalise_without_drafts,
        one_noise_for_all_positions,
        grammar_at_the_first_row_only,
        grammar_keeps_a_step,
        stale_target_kv,
        keep_some_rejected,
        noise_of_the_next_position,
    )
}


def environment(name: str) -> dict[str, str]:
    """Returns the environment variables with which vLLM's processes are sabotaged from their start."""
    path = [str(_ENTRY_POINT), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), _NAME: name}


def register() -> None:
    """Puts the sabotage in force until the process ends; vLLM calls it in each of its processes."""
    in_force = contextlib.ExitStack()
    in_force.enter_context(SABOTAGES[os.environ[_NAME]]())
    atexit.register(in_force.close)
