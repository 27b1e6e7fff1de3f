"""A step of the runner: the part that it leaves to vLLM, and the part that it adds."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vllm_spec_plugin.messages import StepPlan, result_of, send
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.proposers.base import Draft
from vllm_spec_plugin.v1 import runner as module
from vllm_spec_plugin.v1.runner import SpecRunnerMixin
from vllm_spec_plugin.v1.verification.positions import OutputPositions

NAMES = ["a", "b"]
NOT_READ: Any = "not read"


class Stock:
    """vLLM's runner, as far as a step goes through it."""

    speculative_config: Any = "speculation"
    rejection_sampler: Any = None
    input_batch: Any

    def _sample(self, logits, spec_decode_metadata):
        return "stock", spec_decode_metadata

    def _bookkeeping_sync(self):
        self.booked_with = dict(self.input_batch.generators)
        return None, None, None, [[5], []]

    def sample_tokens(self, grammar_output):
        return SimpleNamespace()

    def _update_states(self, scheduler_output):
        return None

    def _dummy_sampler_run(self, hidden_states):
        self.rejection_sampler(SimpleNamespace(num_draft_tokens=[1, 1, 1]), None, torch.zeros(6, 5), "metadata")
        return "sampled"

    def _prepare_inputs(self, scheduler_output):
        self.prepared_with = self.speculative_config


class Scripted:
    """A drafter that drafts one token for each request."""

    def __init__(self):
        verification = SimpleNamespace(lenience=1, method="block")
        lengths = SimpleNamespace(tokens=2)
        self.config = SimpleNamespace(draft_length=lengths, drafts_trees=False, verification=verification)
        self.engine, self.siblings, self.scopes, self.sources = None, 1, {}, {}
        self.uses_states, self.dropped, self.views = False, [], []
        self.pending, self.kept = self, CountersByMethod()

    @property
    def counters(self):
        return self.kept.of("ngram")

    def take_counters(self):
        taken, self.kept = self.kept, CountersByMethod()
        return taken

    def take_probs(self, request_ids, draft_token_ids, device):
        """Has no q."""

    def drop(self, request_ids):
        self.dropped += request_ids

    def draft(self, requests):
        self.views.append(requests)
        self.sources = {request.request_id: 0 for request in requests}
        self.counters.drafts += len(requests)
        return [Draft([7]) for _ in requests]

    def note_step(self, runner, scheduler_output, plan):
        """Keeps no state of requests."""


class SpecRunner(SpecRunnerMixin, Stock):
    """Ours over it."""

    def __init__(self):
        params = SimpleNamespace(temperature=0.0, max_tokens=None, structured_outputs=None, extra_args=None)
        request: Any = SimpleNamespace(prompt_token_ids=[1], sampling_params=params, generator=None)
        self.drafter: Any = Scripted()
        self.requests, self.max_model_len = dict.fromkeys(NAMES, request), 40
        metadata = SimpleNamespace(generators={}, thinking_budget_state_holder=None, logprob_token_ids=None)
        self.input_batch: Any = SimpleNamespace(
            req_ids=NAMES,
            req_id_to_index={name: row for row, name in enumerate(NAMES)},
            generators=metadata.generators,
            sampling_metadata=metadata,
            num_tokens_no_spec=np.array([10, 12]),
            token_ids_cpu=np.zeros((2, 40), np.int32),
        )
        verify = lambda metadata, probs, logits, sampling, trees, drafts: (("ours", drafts), "verdict")  # noqa: E731
        self.rejection_sampler: Any = SimpleNamespace(positions=OutputPositions(), verify=verify)
        self._step_probe = []

    def run_step(self, drafts=None, draft_plan=None):
        """Runs one; gives what was sampled, what was drafted, and what is sent along."""
        scheduled: Any = SimpleNamespace(scheduled_spec_decode_tokens=drafts or {})
        if draft_plan is not None:
            send(scheduled, StepPlan(draft_plan))
        self._update_states(scheduled)
        self._prepare_inputs(scheduled)
        sampled = self._sample(torch.zeros(2, 3), NOT_READ)
        self._bookkeeping_sync()
        assert self.propose_draft_token_ids(scheduled, [[5], [6]], NOT_READ, NOT_READ, NOT_READ) == []
        num_drafted = len(self.drafter.views)
        sent = self.sample_tokens(None)
        assert len(self.drafter.views) == num_drafted, "drafts are made when the outputs have been handed over"
        return sampled, self.take_draft_token_ids(), sent


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.setattr(module, "cut_block_tables", lambda runner, scheduler_output: None)
    return SpecRunner()


@pytest.mark.parametrize(("draws", "max_tokens", "counts"), [(False, 100, [2, 2, 2]), (True, 6, [1, 1, 1])])
def test_memory_is_measured_with_the_longest_drafts_of_a_full_step(runner, draws, max_tokens, counts):
    """vLLM's own dummy step has one draft token per request."""
    seen = []

    def sampler(step, draft_probs, logits, metadata):
        seen.append((step.num_draft_tokens, draft_probs, logits.shape, metadata))

    runner.rejection_sampler, runner.max_num_tokens = sampler, max_tokens
    runner.drafter.config.proposers = [SimpleNamespace(samples=False), SimpleNamespace(samples=draws)]
    assert runner._dummy_sampler_run(None) == "sampled"
    assert runner.rejection_sampler is sampler
    [(num_draft_tokens, q, shape, metadata)] = seen
    assert (num_draft_tokens, shape, metadata) == (counts, (sum(counts) + 3, 5), "metadata")
    assert (q is not None and q.shape) == (draws and (3, 5))


@pytest.mark.parametrize("draft_plan", [None, {}])
def test_a_step_with_nothing_to_verify_and_nothing_to_draft_is_vllms(runner, draft_plan):
    """No random number is drawn, no view made, no message sent; drafts that were not taken are forgotten.

    vLLM prepares the step as without speculation, and the next one again with it.
    """
    before = torch.get_rng_state()
    sampled, drafted, sent = runner.run_step(draft_plan=draft_plan)
    assert (runner.prepared_with, runner.speculative_config) == (None, "speculation")
    assert (sampled, drafted, vars(sent)) == (("stock", None), None, {})
    assert torch.equal(torch.get_rng_state(), before)
    assert (runner.drafter.views, runner.drafter.dropped) == ([], NAMES)


@pytest.mark.parametrize("because", ["drafts", "seed", "thinking"])
def test_the_scorer_samples_what_only_it_can(runner, because):
    batch = runner.input_batch
    if because == "seed":
        batch.generators[1] = torch.Generator()
    if because == "thinking":
        batch.sampling_metadata.thinking_budget_state_holder = SimpleNamespace(has_tracked_requests=lambda: True)
    drafts = {"b": [3, 4]} if because == "drafts" else {}
    sampled, _, sent = runner.run_step(drafts)
    assert runner.prepared_with == "speculation"
    assert sampled == ("ours", [(), drafts.get("b", ())])
    counters: Any = result_of(sent).counters
    assert counters.of("ngram").verification_seconds > 0
