"""From a configured policy to what carries it out."""

from vllm_spec_plugin.config import HeuristicDraftLength, OptimalDraftLength, PluginConfig
from vllm_spec_plugin.scheduling.draft_length.control import (
    Batch,
    Drafting,
    DraftLengthControl,
    Measured,
    Wish,
)
from vllm_spec_plugin.scheduling.draft_length.simple_controls import FixedControl, HeuristicControl

# More than the anchors of a regression, and than the steps between two comparisons of proposers.
_COMPILING_STEPS = 12


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
    # Here and now, not in the first request.
    _compile(_optimal(config, wanted, max_step_tokens), config)
    return _optimal(config, wanted, max_step_tokens)


def _optimal(config: PluginConfig, wanted: OptimalDraftLength, max_step_tokens: int) -> DraftLengthControl:
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


def _compile(control: DraftLengthControl, config: PluginConfig) -> None:
    """Has a control plan and learn for some steps, which compiles what there is to compile; it is of no use after."""
    count, most = len(config.proposers), config.draft_length.tokens
    control.probed([(1, 0.01), (8, 0.02)])
    wishes = [Wish(name, (most,) * count, (0,) * count) for name in ("a", "b")]
    for room in (8 * most, 1, *[8 * most] * _COMPILING_STEPS):
        for wish, turns in zip(wishes, control.plan(wishes, Batch(2, 2, 100, room)), strict=True):
            source, drafted = turns[0] if turns else (None, 0)
            control.verified(wish.request_id, turns, source, drafted, min(drafted, 1))
        control.measured(
            Measured(4, 2, 100, 0.01, tuple(Drafting(1, 2, 0, 1e-3) for _ in range(count)), has_drafts=True)
        )
    control.forget("a")
