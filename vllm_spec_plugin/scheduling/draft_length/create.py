"""From a configured policy to what carries it out."""

from vllm_spec_plugin.config import HeuristicDraftLength, OptimalDraftLength, PluginConfig
from vllm_spec_plugin.scheduling.draft_length.control import DraftLengthControl
from vllm_spec_plugin.scheduling.draft_length.simple_controls import FixedControl, HeuristicControl


def create_control(config: PluginConfig, max_step_tokens: int) -> DraftLengthControl:
    """Builds the policy of a configuration, for its proposers.

    Args:
        config: its `draft_length.policy` says which.
        max_step_tokens: most tokens of a step.
    """
    wanted = config.draft_length
    if isinstance(wanted, HeuristicDraftLength):
        return HeuristicControl([None if proposer.drafts_trees else wanted.tokens for proposer in config.proposers])
    if not isinstance(wanted, OptimalDraftLength):
        return FixedControl()
    # Compiled code: nobody waits for it who does not use it.
    from vllm_spec_plugin.scheduling.draft_length.expectation import ChainExpectation, TreeExpectation
    from vllm_spec_plugin.scheduling.draft_length.lane import Lane
    from vllm_spec_plugin.scheduling.draft_length.optimal_control import OptimalControl
    from vllm_spec_plugin.scheduling.draft_length.request_rows import RequestRows

    requests = RequestRows()
    lanes = []
    for proposer in config.proposers:
        if proposer.drafts_trees:
            nodes, depth = proposer.tree_size(wanted.tokens)
            lanes.append(Lane(TreeExpectation(nodes, depth, wanted.half_life, requests)))
        else:
            lanes.append(Lane(ChainExpectation(wanted.tokens, wanted.half_life, requests)))
    return OptimalControl(lanes, requests, max_step_tokens, wanted.explore)
