"""The real scheduler and a real runner's books, without a model: what an engine core does in a step."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.worker import gpu_model_runner
from vllm.v1.worker.gpu_input_batch import InputBatch
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from tests.engine.integrity import check_tables, check_writes, unknown_excess
from tests.fixed_length import fixed_length
from tests.unit.scheduling.cases import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    MAX_NUM_SEQS,
    engine_config,
    prompt,
    request,
    scheduler_over,
)
from tests.unit.scheduling.pipeline import EngineCore
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.messages import DraftResult, plan_of, send
from vllm_spec_plugin.policy.create import create_control
from vllm_spec_plugin.scheduling import base
from vllm_spec_plugin.v1.runner import SpecRunnerMixin
from vllm_spec_plugin.v1.scheduling.scheduler import SpecScheduler

CONFIG = fixed_length("medusa")
NUM_DRAFTS = 4
TOKEN_BUDGET = 16
VOCAB_SIZE = 1000


def vllm_config():
    return engine_config(CONFIG, TOKEN_BUDGET)


def make_scheduler(num_blocks, *specs, proposer=None):
    """Our scheduler, as the engine core makes it, over a pool of `num_blocks`; `proposer` replaces the file's."""
    config = vllm_config()
    if proposer is not None:
        settings = {"config": {"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": 14}}}
        config.additional_config = {**config.additional_config, KEY: {**config.additional_config[KEY], **settings}}
    return scheduler_over(SpecScheduler, config, num_blocks, *specs)


class Worker(SpecRunnerMixin, GPUModelRunner):
    """A runner of which only the books are there: `_update_states` is the real one."""

    def __init__(self, num_groups):
        self.requests = {}
        self.drafter = mock.Mock()
        self.num_prompt_logprobs = {}
        self.late_interaction_runner = mock.Mock()
        self.encoder_cache = {}
        self.speculative_config: Any = SimpleNamespace(use_ngram_gpu=lambda: False)
        self.use_async_spec_decode = self.use_async_scheduling = False
        self.is_pooling_model = self.uses_mrope = False
        self.reorder_batch_threshold = None
        self.kv_cache_config: Any = SimpleNamespace(kv_cache_groups=[None])
        self.device = torch.device("cpu")
        self.input_batch = InputBatch(
            max_num_reqs=MAX_NUM_SEQS,
            max_model_len=MAX_MODEL_LEN,
            max_num_batched_tokens=TOKEN_BUDGET,
            device=self.device,
            vocab_size=VOCAB_SIZE,
            block_sizes=[BLOCK_SIZE] * num_groups,
            max_num_blocks_per_req=[MAX_MODEL_LEN // BLOCK_SIZE] * num_groups,
            num_spec_tokens=NUM_DRAFTS,
        )

    def take_over(self, scheduler_output):
        """Updates the runner's states, as it does first in a step."""
        with mock.patch.object(gpu_model_runner, "get_pp_group", return_value=SimpleNamespace(is_last_rank=True)):
            self._update_states(scheduler_output)

    def tables(self, request_id):
        """The block ids of a request, per group, in the batch if it is in there."""
        row = self.input_batch.req_id_to_index.get(request_id)
        if row is None:
            return self.requests[request_id].block_ids
        tables = self.input_batch.block_table.block_tables
        return tuple(t.block_table.np[row, : t.num_blocks_per_row[row]].tolist() for t in tables)

    def append(self, request_id, token_ids):
        """Notes a request's new tokens as the runner does."""
        batch, row = self.input_batch, self.input_batch.req_id_to_index[request_id]
        end = batch.num_tokens_no_spec[row] + len(token_ids)
        batch.token_ids_cpu[row, batch.num_tokens_no_spec[row] : end] = token_ids
        batch.num_tokens_no_spec[row] = end
        self.requests[request_id].output_token_ids.extend(token_ids)


def blocks_between(first, last):
    """Counts the blocks that hold positions `first` to `last`."""
    return len({position // BLOCK_SIZE for position in range(first, last + 1)})


class Core(EngineCore):
    """An engine core whose device has only the books.

    Attributes:
        worker: with the runner's books.
        output: of the step that is being computed.
        trees: branches and depth of the trees that wait to be verified, by request.
        left: outputs to clients, step by step.
    """

    def __init__(self, num_blocks, *specs, reserves=True, proposer=None, control=None):
        creates = mock.patch.object(base, "create_control", (lambda *_: control) if control else create_control)
        with creates:
            super().__init__(make_scheduler(num_blocks, *specs, proposer=proposer))
        self.blocks.kv_proposer = 0 if reserves else None
        self.worker = Worker(len(specs))
        self.trees, self.left = {}, []

    @property
    def manager(self):
        return self.scheduler.kv_cache_manager

    @property
    def blocks(self):
        return self.scheduler._blocks

    def begin(self):
        """Plans a step and brings the worker's books up to date."""
        self.output = self.scheduler.schedule()
        self.worker.take_over(self.output)
        self.scheduler.check_integrity()
        assert not unknown_excess(self.scheduler)
        check_tables(self.scheduler, self.worker)
        check_writes(self.scheduler, self.worker, self.output)
        self.check_forks()

    def end(self, num_accepted=0, num_drafts=NUM_DRAFTS, num_branches=0):
        """Verifies, drafts, and tells the scheduler.

        Args:
            num_accepted: most drafts that each request accepts.
            num_drafts: most that each is drafted for.
            num_branches: of drafts, besides the trunk, where there are tokens for them.
        """
        output, batch = self.output, self.worker.input_batch
        sampled: dict[str, list[int]] = {}
        drafts: dict[str, list[int]] = {}
        for request_id, num_scheduled in output.num_scheduled_tokens.items():
            start = self.worker.requests[request_id].num_computed_tokens
            stop = start + num_scheduled
            row = batch.req_id_to_index[request_id]
            length = int(batch.num_tokens_no_spec[row])
            verified = output.scheduled_spec_decode_tokens.get(request_id, [])
            sampled[request_id], drafts[request_id] = [], []
            if stop >= length:
                assert stop == length + len(verified)
                depth = self.trees.pop(request_id, (0, NUM_DRAFTS))[1]
                accepted = verified[: min(num_accepted, depth)]
                sampled[request_id] = [*accepted, (length + 7 * len(accepted)) % VOCAB_SIZE]
                room = MAX_MODEL_LEN - length - len(sampled[request_id])
                assert room >= 0
                self.worker.append(request_id, sampled[request_id])
                length += len(sampled[request_id])
                count = min(num_drafts, MAX_MODEL_LEN - length - 1)
                if self.blocks.kv_proposer is not None:
                    # The last draft's KV is written when it is verified, and it needs its slot by then only.
                    count = min(count, self.num_slots(request_id) - length + 1)
                drafts[request_id] = [(length + i) % VOCAB_SIZE for i in range(max(0, count))]
                if (branches := min(num_branches, len(drafts[request_id]) - 1)) > 0:
                    self.trees[request_id] = (branches, len(drafts[request_id]) - branches)
                if drafts[request_id] and self.blocks.kv_proposer is not None:
                    stop = max(stop, length + len(drafts[request_id]) - 1)
            assert stop <= self.num_slots(request_id)
        scheduled = [request_id for request_id in batch.req_ids if request_id in sampled]
        outcome = ModelRunnerOutput(
            req_ids=scheduled,
            req_id_to_index={request_id: i for i, request_id in enumerate(scheduled)},
            sampled_token_ids=[sampled[request_id] for request_id in scheduled],
        )
        self.left.append(self.end_step(output, outcome))
        if scheduled:
            drafted = DraftTokenIds(scheduled, [drafts[request_id] for request_id in scheduled])
            trees = {request_id: self.trees[request_id] for request_id in scheduled if request_id in self.trees}
            send(drafted, DraftResult(trees=trees))
            self.scheduler.update_draft_token_ids(drafted)
        self.scheduler.check_integrity()

    def step(self, num_accepted=0, num_drafts=NUM_DRAFTS, num_branches=0):
        """A whole step."""
        self.begin()
        self.end(num_accepted, num_drafts, num_branches)

    @property
    def forks(self):
        """Per request the blocks that the step's branches got, each one's together."""
        return {
            request_id: [block_ids[i : i + size] for i in range(0, len(block_ids), size)]
            for request_id, (block_ids, size) in plan_of(self.output).forks.items()
        }

    def num_slots(self, request_id):
        """Tokens that the request's blocks have room for, as the worker sees it."""
        return min(map(len, self.worker.tables(request_id))) * BLOCK_SIZE

    def check_forks(self):
        """Branches have blocks that nobody else has, long enough, and as many as free blocks allow."""
        tables = [self.manager.get_block_ids(request_id)[0] for request_id in self.scheduler.requests]
        taken = {0, *(block_id for table in tables for block_id in table)}
        for request_id, forks in self.forks.items():
            assert request_id in self.output.num_scheduled_tokens
            for block_id in (block_id for fork in forks for block_id in fork):
                assert block_id not in taken
                taken.add(block_id)
        for request_id, (num_branches, depth) in self.trees.items():
            if not self.output.scheduled_spec_decode_tokens.get(request_id):
                continue
            row = self.worker.input_batch.req_id_to_index[request_id]
            length = int(self.worker.input_batch.num_tokens_no_spec[row])
            size = blocks_between(length, length + depth - 1)
            forks = self.forks.get(request_id, [])
            assert all(len(fork) == size for fork in forks)
            if len(forks) < num_branches:
                assert self.manager.block_pool.get_num_free_blocks() < size


HEADS = {"method": "medusa", "model": "org/heads", "tree": "auto"}


def add(core, request_id, family, num_tokens, max_tokens=MAX_MODEL_LEN):
    new = request(request_id, prompt(family, num_tokens), max_tokens)
    core.scheduler.add_request(new)
    return new


def held(core, request_id="a"):
    return len(core.manager.get_block_ids(request_id)[0])
