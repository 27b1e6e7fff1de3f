"""Stands in for vLLM's bookkeeping and for a policy, around a `DraftLengthAdapter`."""

from types import SimpleNamespace
from typing import Any

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.messages import DraftResult
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.policy.fixed import FixedControl
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter

DRAFT_MODEL = {"proposer": {"method": "draft_model", "model": "draft"}}
CASCADE = {"proposer": {"method": "cascade", "proposers": [{"method": "ngram"}, DRAFT_MODEL["proposer"]]}}
TREE = {"proposer": {"method": "medusa", "model": "heads", "tree": "auto"}}


class Listening(FixedControl):
    """Does what it is told, and keeps what it is told."""

    is_constant = False
    counters: CountersByMethod

    def __init__(self, lengths=None):
        self.lengths, self.requests, self.told, self.steps = lengths, [], [], []
        self.is_on = True
        self.num_plans, self.forgotten = 0, []
        self.batch: Any = None

    def begin_step(self, num_requests):
        return self.is_on

    def plan(self, wishes, batch):
        self.requests, self.batch = list(wishes), batch
        self.num_plans += 1
        if self.lengths is None:
            return super().plan(wishes, batch)
        return [((0, length),) if length else () for length in self.lengths[: len(wishes)]]

    def verified(self, *told):
        self.told.append(told)

    def measured(self, step):
        self.steps.append(step)

    def forget(self, request_id):
        self.forgotten.append(request_id)


def request(name, num_tokens=10, computed=None, max_tokens=100, num_output=1, chunk=False, **extra):
    return SimpleNamespace(
        request_id=name,
        num_tokens=num_tokens,
        num_prompt_tokens=num_tokens - num_output,
        num_computed_tokens=num_tokens if computed is None else computed,
        max_tokens=max_tokens,
        num_output_tokens=num_output,
        is_prefill_chunk=chunk,
        num_output_placeholders=0,
        sampling_params=SimpleNamespace(
            ignore_eos=False,
            extra_args=extra or None,
            thinking_token_budget=None,
            min_tokens=0,
            structured_outputs=None,
        ),
        resumable=False,
        prompt_embeds=None,
        is_finished=lambda: False,
    )


def output(scheduled: dict[str, int], preempted=(), drafts: Any = (), new: Any = (), resumed: Any = ()) -> Any:
    """vLLM's plan; of `new` and `resumed` requests the tokens that the prefix cache had."""
    return SimpleNamespace(
        num_scheduled_tokens=scheduled,
        total_num_scheduled_tokens=sum(scheduled.values()),
        preempted_req_ids=set(preempted),
        scheduled_spec_decode_tokens=dict(drafts),
        scheduled_new_reqs=[
            SimpleNamespace(req_id=request_id, num_computed_tokens=count) for request_id, count in dict(new).items()
        ],
        scheduled_cached_reqs=SimpleNamespace(
            resumed_req_ids=set(dict(resumed)),
            req_ids=list(dict(resumed)),
            num_computed_tokens=[*dict(resumed).values()],
        ),
    )


def make(control, *requests, config=DRAFT_MODEL, tokens=4, policy="fixed"):
    config = config | {"draft_length": {"policy": policy, "tokens": tokens}}
    control.counters = CountersByMethod()
    adapter = DraftLengthAdapter(control, parse_config(config, "spec.yaml"), 64, control.counters)
    for one in requests:
        adapter.add(one)
    return adapter


def plan(adapter, step, running, max_step_tokens=100):
    """Plans a step, and returns its draft_plan."""
    return adapter.plan(step, running, lambda: max_step_tokens, adapter.now()).draft_plans


def end(adapter, *requests, drafted=0, accepted=0, sources=None, counted=None, waiting=(), is_busy=True):
    """The outcome of a step that sampled these requests, and computed a part of the prompt of those `waiting`."""
    step = adapter.take_step()
    for one in requests:
        if drafted or one.request_id in step.drafted_as:
            adapter.verified(step, one.request_id, drafted, accepted)
    adapter.ended(step, len(requests) * (accepted + 1), is_busy=is_busy)
    adapter.drafted({one.request_id: one for one in [*requests, *waiting]}, DraftResult(counted, sources or {}))


def counted_of(control, method="draft_model"):
    return CountersByMethod.from_payload(control.counters.take_payload()).of(method)
