"""From a configured policy to what carries it out."""

from vllm_spec_plugin.config import HeuristicDraftLength, OptimalDraftLength, PluginConfig
from vllm_spec_plugin.scheduling.draft_length.control import DraftLengthControl
from vllm_spec_plugin.scheduling.draft_length.simple_controls import FixedControl, HeuristicControl


def create_control(config: PluginConfig, max_step_tokens: int) -> DraftLengthControl:
    """Builds the policy of a configuration.

    Args:
        config: its `draft_length.policy` says which.
        max_step_tokens: most tokens of a step.
    """
    wanted = config.draft_length
    if isinstance(wanted, HeuristicDraftLength):
        return HeuristicControl(wanted.tokens)
    if not isinstance(wanted, OptimalDraftLength):
        return FixedControl()
    # Compiled code: nobody waits for it who does not use it.
    from vllm_spec_plugin.scheduling.draft_length.expectation import ChainExpectation, Expectation, TreeExpectation
    from vllm_spec_plugin.scheduling.draft_length.optimal_control import OptimalControl

    expectation: Expectation
    if config.proposer.drafts_trees:
        nodes, depth = config.proposer.tree_size(wanted.tokens)
        expectation = TreeExpectation(nodes, depth, wanted.half_life)
    else:
        expectation = ChainExpectation(wanted.tokens, wanted.half_life)
    return OptimalControl(expectation, max_step_tokens, wanted.explore)
