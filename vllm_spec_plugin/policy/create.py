"""Creates the configured policy of draft lengths."""

from vllm_spec_plugin.config import OptimalDraftLength, PluginConfig, RandomDraftLength
from vllm_spec_plugin.policy.control import (
    Drafting,
    DraftLengthControl,
    DraftRequest,
    MeasuredStep,
    StepBatch,
)
from vllm_spec_plugin.policy.fixed import FixedControl
from vllm_spec_plugin.policy.memory import Learned
from vllm_spec_plugin.policy.random_lengths import RandomControl

# Steps in which every compiled function is called.
_COMPILING_STEPS = 24


def create_control(
    config: PluginConfig, max_step_tokens: int, drafts_in_step: bool = False, learned: Learned | None = None
) -> DraftLengthControl:
    """Creates the policy of a configuration, for its proposers; compiles what it needs.

    Args:
        config: configuration with the section `draft_length`.
        max_step_tokens: maximum tokens of a step.
        drafts_in_step: whether the time of a step includes that of the last proposer, which drafts beside others.
        learned: what a former server's policy learned; None for nothing.
    """
    draft_length = config.draft_length
    if isinstance(draft_length, RandomDraftLength):
        return RandomControl(draft_length.seed)
    if not isinstance(draft_length, OptimalDraftLength):
        return FixedControl()
    # At start-up, so that no request waits for the compiler.
    arguments = config, draft_length, max_step_tokens, drafts_in_step
    _compile(_optimal(*arguments), config, drafts_in_step)
    return _optimal(*arguments, learned)


def _optimal(
    config: PluginConfig,
    draft_length: OptimalDraftLength,
    max_step_tokens: int,
    drafts_in_step: bool,
    learned: Learned | None = None,
) -> DraftLengthControl:
    # Imported here: numba takes a second to load.
    from vllm_spec_plugin.policy.costs import ProposerTraits
    from vllm_spec_plugin.policy.optimal import OptimalControl

    last = len(config.proposers) - 1
    traits = [
        ProposerTraits(
            proposer.tree_size(draft_length.tokens)[0] if proposer.drafts_trees else draft_length.tokens,
            proposer.drafts_trees,
            drafts_in_step and i == last,
            proposer.drafts_in_one_pass,
        )
        for i, proposer in enumerate(config.proposers)
    ]
    return OptimalControl(traits, draft_length.half_life, max_step_tokens, learned)


def _compile(control: DraftLengthControl, config: PluginConfig, drafts_in_step: bool) -> None:
    """Compiles all functions by some steps of a control, which is not used afterwards."""
    count, length = len(config.proposers), config.draft_length.tokens
    if not drafts_in_step:
        control.probed([(1, 0.01), (8, 0.02)])
    for _ in range(_COMPILING_STEPS):
        # Without steps without drafts nothing is compared.
        control.measured(MeasuredStep(2, 2, 100, 0.01, (Drafting(0, 0, 0, 0.0),) * count))
    requests = [DraftRequest(name, (length,) * count, (0,) * count) for name in ("a", "b")]
    for room in (8 * length, 1, *[8 * length] * _COMPILING_STEPS):
        for request, draft_plan in zip(requests, control.plan(requests, StepBatch(2, 2, 100, room)), strict=True):
            source, drafted = draft_plan[0] if draft_plan else (None, 0)
            control.verified(
                request.request_id, draft_plan, source, drafted, min(drafted, 1), nodes=(0,) if drafted else ()
            )
        control.measured(
            MeasuredStep(4, 2, 100, 0.01, tuple(Drafting(1, 2, 0, 1e-3) for _ in range(count)), has_drafts=True)
        )
    assert control.acceptance, "read by the metrics"
    control.forget("a")
