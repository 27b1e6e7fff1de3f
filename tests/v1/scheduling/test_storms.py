"""Random sequences of requests: drafts take no block that a request needs, and all books agree after every step."""

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from vllm.v1.core.sched.scheduler import Scheduler

from tests.engine.books import holding
from tests.sizes import examples
from tests.unit.scheduling.cases import BLOCK_SIZE, FULL, MAX_MODEL_LEN, WINDOW
from tests.v1.scheduling.steps import HEADS, Core, add
from vllm_spec_plugin.compat.kv_cache import RequestStatus

SETTINGS = settings(max_examples=examples(8, 100), stateful_step_count=40, deadline=None, derandomize=True)


class Steps(RuleBasedStateMachine):
    """Requests come, are drafted for, preempted, aborted, and all end. Checked in every step, see `Core`.

    Also checked: a step preempts no request that vLLM's own scheduler keeps in the same state without any draft; and in
    the end, whatever happened, all remaining requests are served and all blocks are free.
    """

    specs: tuple = (FULL,)
    reserves = True
    proposer: dict | None = None
    # Branches of a draft besides the trunk.
    num_branches = st.just(0)
    num_blocks = 14
    # Less than all requests' drafts: some wait for their turn.
    token_budget = 12

    def __init__(self):
        super().__init__()
        self.core = Core(self.num_blocks, *self.specs, reserves=self.reserves, proposer=self.proposer)
        self.core.scheduler.max_num_scheduled_tokens = self.token_budget
        self.count = 0

    @rule(family=st.integers(1, 2), num_tokens=st.integers(1, 30), max_tokens=st.integers(1, 24))
    def add(self, family, num_tokens, max_tokens):
        self.count += 1
        add(self.core, f"r{self.count}", family, num_tokens, max_tokens)

    @rule(data=st.data(), num_accepted=st.integers(0, 4), num_drafts=st.integers(0, 4))
    def step(self, data, num_accepted, num_drafts):
        self.begin()
        self.core.end(num_accepted, num_drafts, data.draw(self.num_branches))

    @precondition(lambda self: self.core.scheduler.requests)
    @rule(data=st.data(), num_accepted=st.integers(0, 4))
    def abort_in_a_step(self, data, num_accepted):
        self.begin()
        self.abort(data)
        self.core.end(num_accepted, num_branches=data.draw(self.num_branches))

    @precondition(lambda self: self.core.scheduler.requests)
    @rule(data=st.data())
    def abort(self, data):
        if self.core.scheduler.requests:
            name = data.draw(st.sampled_from(sorted(self.core.scheduler.requests)))
            self.core.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    @precondition(lambda self: self.core.scheduler.running)
    @rule()
    def reset_prefix_cache(self):
        """Preempts all; they resume in the very next step."""
        assert self.core.scheduler.reset_prefix_cache(reset_running_requests=True)

    def begin(self):
        # A request that a reset has preempted counts among the next step's.
        before = {request.request_id for request in self.core.scheduler.running}
        spared = self.preempted_without_drafts()
        self.core.begin()
        preempted = before & self.core.output.preempted_req_ids
        assert preempted <= spared
        if len(self.core.scheduler.running) == 0:
            assert not self.core.scheduler.waiting

    def preempted_without_drafts(self):
        """The requests that vLLM would preempt without any drafting: no drafts to verify, no blocks held for them."""
        ours = self.core.scheduler
        config = ours.vllm_config
        shared = [config, *vars(config).values(), ours.kv_cache_config, ours.structured_output_manager]
        # Copying takes most of these tests' time, and these are not written.
        shared += [request.sampling_params for request in ours.requests.values()]
        stock = copy.deepcopy(ours, {id(thing): thing for thing in shared})
        stock.kv_cache_manager.release_forks()
        for running in stock.running:
            running.spec_token_ids = []
            stock.kv_cache_manager.rollback(running, running.num_tokens)
        return Scheduler.schedule(stock).preempted_req_ids

    def teardown(self):
        scheduler = self.core.scheduler
        left = sum(request.num_tokens + request.max_tokens for request in scheduler.requests.values())
        for _ in range(left + 10):
            if not scheduler.has_requests():
                break
            self.begin()
            self.core.end(num_accepted=3)
        assert not scheduler.requests
        assert self.core.manager.block_pool.get_num_free_blocks() == self.num_blocks - 1
        assert not holding(scheduler, frozenset(f"r{i}" for i in range(self.count + 1)), "scheduler")


class StepsWithoutDraftKV(Steps):
    """Drafts that come from elsewhere need slots when they are verified, not before; trees then need forks."""

    reserves = False
    proposer = HEADS
    num_branches = st.integers(0, 3)


class StepsOfTwoGroups(Steps):
    """A second KV group, with a sliding window, in the same pool."""

    specs = (FULL, WINDOW)
    num_blocks = 2 * MAX_MODEL_LEN // BLOCK_SIZE + 1
    token_budget = 7


TestSteps = Steps.TestCase
TestSteps.settings = SETTINGS
TestStepsWithoutDraftKV = StepsWithoutDraftKV.TestCase
TestStepsWithoutDraftKV.settings = SETTINGS
TestStepsOfTwoGroups = StepsOfTwoGroups.TestCase
TestStepsOfTwoGroups.settings = settings(SETTINGS, max_examples=examples(6, 50))
