"""Random draft lengths, and steps of equal length: tests of exactness do not depend on how long steps take."""

import tempfile
from collections import Counter
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import yaml

from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.messages import result_of
from vllm_spec_tools.certify.subject import at_random_lengths

# What a step takes for the policy, in seconds; drafting takes far less.
_STEP = 0.1
# Drafts with a branch that were verified, as "drafted accepted".
_seen = Counter[str]()


def with_random_lengths(path: str) -> str:
    """Returns the path of a file with the same proposers and `policy: random`."""
    copy = Path(tempfile.mkdtemp(), "random.yaml")
    copy.write_text(yaml.safe_dump(at_random_lengths(load_config(path))))
    return str(copy)


def check_nodes() -> None:
    """Checks which nodes of trees are reported by engines on V1 that are built from now on.

    The engine's scheduler must be in this process. Nodes are checked where there is one proposer.
    """
    from vllm_spec_plugin.v1.scheduling import scheduler

    update = scheduler.SpecScheduler.update_from_output

    def checked_update(self: Any, scheduler_output: Any, output: Any) -> Any:
        reported = result_of(output).accepted_nodes
        parents = _tree_order(self.vllm_config.additional_config) if reported else ()
        for request_id, nodes in reported.items():
            accepted = len(output.sampled_token_ids[output.req_id_to_index[request_id]]) - 1
            drafted = len(scheduler_output.scheduled_spec_decode_tokens[request_id])
            assert len(nodes) == accepted
            if parents:
                assert [parents[node] for node in nodes] == [-1, *nodes[:-1]][: len(nodes)]
            _seen[f"{drafted} {accepted}"] += 1
        return update(self, scheduler_output, output)

    mock.patch.object(scheduler.SpecScheduler, "update_from_output", checked_update).start()


def equal_steps(seconds: float = _STEP) -> None:
    """Tells the policy of each engine from now on that all steps take equally long, so that it drafts much."""
    from vllm_spec_plugin.scheduling import adapter

    mock.patch.object(adapter, "time", equal_clock(seconds)).start()


def long_calls() -> None:
    """Lets grammars draft for a second, so that tests do not depend on how busy the machine is."""
    from vllm_spec_plugin.proposers.grammar import proposer

    mock.patch.object(proposer, "SECONDS", 1.0).start()


def equal_clock(seconds: float = _STEP) -> SimpleNamespace:
    """Returns what stands for the module `time` where each look at the clock is as far from the one before."""
    ticks = count()
    return SimpleNamespace(perf_counter=lambda: next(ticks) * seconds)


def count_anew() -> Counter[str]:
    """Forgets the drafts with a branch that were verified, and returns the count of those to come."""
    _seen.clear()
    return _seen


def _tree_order(additional_config: Any) -> tuple[int, ...]:
    """Parents of a tree's nodes; empty where several proposers draft."""
    config = config_in(additional_config)
    if len(config.proposers) > 1:
        return ()
    return config.proposers[0].tree_order(config.draft_length.tokens)
