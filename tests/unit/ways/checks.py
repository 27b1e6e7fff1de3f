"""Checks of the rules in `tests/ways/table.py`, each on one way to draft without a model."""

from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory

import numpy as np

from tests.unit.scheduling.test_pipelines import either, unpredictable
from tests.unit.ways.counter_checks import (
    FORECASTS,
    drafts_counted,
    ended_counted,
    errors_counted,
    forecasts_counted,
    lengths_counted,
    positions_counted,
    salts_counted,
    seconds_counted,
    serve_many,
)
from tests.unit.ways.grammar_checks import continued, grammars
from tests.unit.ways.request_checks import (
    defaults,
    end_of_output,
    min_tokens,
    nothing_is_kept,
    outputs,
    predictions,
    run,
    spec_method,
    spec_off,
    spec_tokens,
    switch_of_both,
    without_drafts,
)
from tests.ways.pipelines import Bench, K, add
from vllm_spec_plugin.metrics.counters import WITHOUT_DRAFTS
from vllm_spec_plugin.policy import random_lengths
from vllm_spec_plugin.policy.fixed import FixedControl
from vllm_spec_plugin.policy.random_lengths import RandomControl
from vllm_spec_plugin.scheduling import memory_file


def only_running(bench: Bench) -> None:
    """A request is preempted between two steps, as `reset_prefix_cache` does it."""
    pipeline = bench.pipeline(either)
    pipeline.add("a", 1, 6, 38)
    while not pipeline.scheduler.requests["a"].num_output_tokens > 12:
        pipeline.step()
    pipeline.scheduler.reset_prefix_cache(reset_running_requests=True)
    first = len(pipeline.verified)
    output = pipeline.scheduler.schedule()
    assert not output.scheduled_spec_decode_tokens
    assert not pipeline.scheduler.requests["a"].spec_token_ids
    pipeline._running.append((output, pipeline._run(output)))
    pipeline._end()
    pipeline.finish()
    assert any(pipeline.lengths[first:])
    assert pipeline.outputs("a", 6, 38) == pipeline.expected(1, 6, 38)


def left_out(bench: Bench) -> None:
    """A step has room for one of two requests only; the device forgets the other's drafts, as V1 does its q."""
    pipeline = bench.pipeline(either)
    for name in "ab":
        pipeline.add(name, 1, 5, 30)
    while not all(pipeline.drafts.get(name) for name in "ab"):
        pipeline.step()
    budget, pipeline.scheduler.max_num_scheduled_tokens = pipeline.scheduler.max_num_scheduled_tokens, K + 1
    scheduled = set()
    for _ in range(3):
        output = pipeline.scheduler.schedule()
        scheduled |= output.num_scheduled_tokens.keys()
        for name in {"a", "b"} - output.num_scheduled_tokens.keys():
            pipeline.drafts.pop(name, None)
        pipeline._running.append((output, pipeline._run(output)))
        pipeline._end()
    pipeline.scheduler.max_num_scheduled_tokens = budget
    assert scheduled < {"a", "b"}
    pipeline.finish()
    for name in "ab":
        assert pipeline.outputs(name, 5, 30) == pipeline.expected(1, 5, 30)


def certain(bench: Bench) -> None:
    """The scheduler sends a token-only draft as token ids, of which the worker keeps no q; the others are its own."""
    pipeline = bench.pipeline(either)
    pipeline.add("a", 1, 6, 38)
    sent: list[int] = []
    while pipeline.scheduler.has_requests():
        output = pipeline.scheduler.schedule()
        sent += [token for own in output.scheduled_spec_decode_tokens.values() for token in own]
        pipeline._running.append((output, pipeline._run(output)))
        if len(pipeline._running) > pipeline._delay:
            pipeline._end()
    while pipeline._running:
        pipeline._end()
    has_ids, has_placeholders = any(token >= 0 for token in sent), any(token < 0 for token in sent)
    on_device = bench.kind.told([1]) == [-1] or bench.kind.is_async
    assert has_ids == ("suffix" in bench.methods or not on_device)
    assert has_placeholders == on_device


def tenants_apart(bench: Bench) -> None:
    """A tenant's next request drafts from the tenant's own finished response, and from no other tenant's."""
    pipeline = bench.pipeline(unpredictable)
    accepted: list[int] = []
    for salt in ("one", "two", "one"):
        before = pipeline.total("accepted_per_position")
        add(pipeline, f"r{len(accepted)}", 6, 24, {"extra_args": {"spec_method": "suffix"}}, cache_salt=salt)
        pipeline.finish()
        accepted.append(sum(pipeline.total("accepted_per_position")) - sum(before))
    assert accepted[:2] == [0, 0]
    assert accepted[2] > 10


def rests(bench: Bench) -> None:
    pipeline = run(bench, spec="off")
    assert pipeline.total("drafter_rests") > 60
    assert not pipeline.total("drafter_passes")
    # The last step's passes are sent with the next one's.
    passes, draft_tokens = (run(bench).total(name) for name in ("drafter_passes", "draft_tokens"))
    assert passes > 20
    assert draft_tokens > 20


def caught_up(bench: Bench) -> None:
    """Off for long in a fifth of the steps."""
    bench.monkeypatch.setattr(random_lengths, "_OFF_FOR_LONG", 0.2)
    pipeline = bench.pipeline(either, control=RandomControl(0))
    for i in range(8):
        pipeline.add(f"r{i}", i, 5, 30)
        pipeline.step()
    pipeline.finish()
    assert pipeline.total("stale_requests") > 8
    assert pipeline.total("caught_up_tokens") > 20


class Pausing(FixedControl):
    """Drafts in the first steps, and then no more."""

    is_constant, steps = False, 0

    def __init__(self) -> None:
        """Starts at the first step."""

    def begin_step(self, num_requests: int) -> bool:
        """Counts steps."""
        self.steps += 1
        return self.steps < 6


def switched_off(bench: Bench) -> None:
    pipeline = bench.pipeline(either, control=Pausing())
    pipeline.add("a", 1, 5, 30)
    pipeline.finish()
    assert pipeline.total("switched_off") == 1


def memory(bench: Bench) -> None:
    """A server leaves what it learned, and the next one of the same configuration begins with it."""
    bench.monkeypatch.setenv(memory_file.SWITCH, "1")
    bench.monkeypatch.setattr(memory_file, "EVERY_IDLE", 0.0)
    with TemporaryDirectory() as folder:
        section = {"policy": "optimal", "tokens": K, "memory": folder}
        pipeline = bench.pipeline(either, draft_length=section)
        before = np.concatenate(pipeline.control.acceptance)
        serve_many(bench, pipeline)
        after = np.concatenate(pipeline.control.acceptance)
        later = np.concatenate(bench.pipeline(either, draft_length=section).control.acceptance)
    # Positions with few tokens lean on those before them, more than before.
    assert 0 < abs(later - after).max() < abs(before - after).max() / 2


REQUESTS = {reason: partial(without_drafts, reason=reason) for reason in WITHOUT_DRAFTS}
CHECKS: dict[tuple[str, str], Callable[[Bench], None]] = {
    **{("request", reason): check for reason, check in REQUESTS.items()},
    ("option", "spec"): spec_off,
    ("option", "spec_tokens"): spec_tokens,
    ("option", "spec_method"): spec_method,
    ("option", "spec_prediction"): predictions,
    ("scheduling", "grammars"): grammars,
    ("scheduling", "continued"): continued,
    ("scheduling", "defaults"): defaults,
    ("scheduling", "switch"): switch_of_both,
    ("scheduling", "memory"): memory,
    ("scheduling", "outputs"): outputs,
    ("scheduling", "ended"): nothing_is_kept,
    ("scheduling", "end of output"): end_of_output,
    ("scheduling", "min_tokens"): min_tokens,
    ("scheduling", "not running"): only_running,
    ("scheduling", "left out"): left_out,
    ("scheduling", "tenants"): tenants_apart,
    ("scheduling", "rests"): rests,
    ("drafts", "certain"): certain,
    ("counter", "drafts"): drafts_counted,
    ("counter", "draft_tokens"): drafts_counted,
    ("counter", "proposer_errors"): errors_counted,
    ("counter", "proposer_seconds"): seconds_counted,
    ("counter", "verified_per_position"): positions_counted,
    ("counter", "verified_by_kind"): grammars,
    ("counter", "accepted_by_kind"): grammars,
    ("counter", "accepted_per_position"): positions_counted,
    ("counter", "ended"): ended_counted,
    ("counter", "chosen_lengths"): lengths_counted,
    ("counter", "without_drafts"): REQUESTS["resumable"],
    ("counter", "requests_without_salt"): salts_counted,
    ("counter", "drafter_passes"): rests,
    ("counter", "drafter_rests"): rests,
    ("counter", "stale_requests"): caught_up,
    ("counter", "caught_up_tokens"): caught_up,
    ("counter", "switched_off"): switched_off,
    ("counter", "max_draft_tokens"): switch_of_both,
    **{("counter", name): forecasts_counted for name in FORECASTS},
}
