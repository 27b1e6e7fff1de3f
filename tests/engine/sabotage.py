"""Engines that are wrong on purpose, to show that the checks would notice.

Each sabotage returns what it puts in place of what: (owner, name of the attribute, value).
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch

from vllm_spec_plugin.v1.verification import block, chain, noise, tree

Replacements = list[tuple[Any, str, Any]]


def accept_everything() -> Replacements:
    """Every draft token is kept."""
    from vllm_spec_plugin.v1.verification import sampler

    def keep_lengths(probs: Any, p: Any, tokens: Any, lengths: torch.Tensor, *_: Any) -> Any:
        return lengths, torch.ones(len(lengths), device=lengths.device)

    def keep_all(most_likely: Any, drafts: Any, rows: Any) -> Any:
        most_likely = most_likely.copy()
        most_likely[rows.draft_row.numpy()] = drafts
        return chain.verify_greedy(most_likely, drafts, rows)

    return [
        (chain, "_leading", lambda accepted, rows: rows.num_draft_tokens.clone()),
        (block, "accept_blocks", keep_lengths),
        (sampler, "verify_greedy", keep_all),
    ]


def recover_from_p() -> Replacements:
    """After a rejection the token is drawn from p instead of norm(max(0, p - q))."""
    return [(chain, "_residual", lambda probs, *_: probs)]


def ignore_temperature() -> Replacements:
    """Draft tokens are judged at temperature 1; rows that judge no draft keep their temperature."""
    from vllm_spec_plugin.v1.verification import sampler
    from vllm_spec_plugin.v1.verification.constraints import constrain

    def constrain_at_one(target: Any, metadata: Any, **_: Any) -> torch.Tensor:
        logits = constrain(target, metadata)
        at_one = dataclasses.replace(metadata, temperature=torch.ones_like(metadata.temperature))
        logits[target.rows.draft_row] = constrain(target, at_one)[target.rows.draft_row]
        return logits

    return [(sampler, "constrain", constrain_at_one)]


def siblings_from_p() -> Replacements:
    """Siblings are judged like independent draws, certain ones too: p stays p after one was rejected."""

    def try_all(self: Any, request: Any) -> bool:
        if self._drawn is None:
            self._q = torch.ones(len(self._tokens), device=self._tokens.device)
        return bool(request.siblings)

    return [(tree._Step, "has_drawn_siblings", try_all), (tree._Step, "_reject", mock.MagicMock())]


def lenient() -> Replacements:
    """Draft tokens are kept a little too often, greedy ones also where another is more likely."""
    from vllm_spec_plugin.v1.verification.sampler import SpecRejectionSampler

    return [(SpecRejectionSampler, "lenience", property(lambda self: 0.5, lambda self, value: None))]


def ignore_min_p() -> Replacements:
    """Rows are constrained by everything but min-p."""
    from vllm_spec_plugin.v1.compat import sampling

    apply = sampling.apply_at_rows

    def apply_others(processor: Any, logits: torch.Tensor, *args: Any) -> torch.Tensor:
        return logits if type(processor).__name__.startswith("MinP") else apply(processor, logits, *args)

    return [(sampling, "apply_at_rows", apply_others)]


def penalise_without_drafts() -> Replacements:
    """Penalties count the tokens before the step, and not the drafts before a row."""
    from vllm_spec_plugin.v1.verification import constraints

    return [(constraints, "add_counts_", lambda counts, context: counts)]


def one_noise_for_all_positions() -> Replacements:
    """A seeded request's noise does not depend on the position."""
    from vllm_spec_plugin.v1.verification import sampler

    keys = noise.position_keys
    return [(sampler, "position_keys", lambda seeds, at: keys(seeds, torch.zeros_like(at)))]


def grammar_at_the_first_row_only() -> Replacements:
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

    return [(gpu_model_runner, "apply_grammar_bitmask", apply_once)]


def grammar_keeps_a_step() -> Replacements:
    """One step of a draft from a grammar is not undone."""
    from vllm_spec_plugin.proposers.grammar.state import Trial

    leave = Trial.__exit__

    def leave_early(self: Trial, *error: Any) -> None:
        self._num_steps = max(self._num_steps - 1, 0)
        leave(self, *error)

    return [(Trial, "__exit__", leave_early)]


def stale_target_kv() -> Replacements:
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

    return [(SpecRunnerMixin, "_prepare_inputs", prepare_without_first)]


@contextlib.contextmanager
def _in_force(sabotage: Callable[[], Replacements]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for owner, name, value in sabotage():
            stack.enter_context(mock.patch.object(owner, name, value, create=name == "lenience"))
        yield


_ALL = (
    *(accept_everything, recover_from_p, ignore_temperature),
    *(siblings_from_p, lenient, ignore_min_p, penalise_without_drafts, one_noise_for_all_positions),
    *(grammar_at_the_first_row_only, grammar_keeps_a_step, stale_target_kv),
)
SABOTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    sabotage.__name__: functools.partial(_in_force, sabotage) for sabotage in _ALL
}
