"""The parts of drafting with a draft model, in our runner and in vLLM's, under the same names."""

import contextlib
from collections.abc import Iterator
from typing import Any

from vllm_spec_plugin.tools.bench.drafting.stopwatch import Stopwatch, TimedModel, replaced

# With its output head.
FORWARD = "draft model"
CHOICE = "sampling"
METADATA = "attention metadata"
INPUTS = "inputs"
REST = "planning"
PARTS = (FORWARD, CHOICE, METADATA, INPUTS, REST)

# Methods of `Drafter.engine`; what is not in one of them is the rest.
_OURS = {
    "constrain": CHOICE,
    "start": INPUTS,
    "step": INPUTS,
    "branch": INPUTS,
    "_forward": INPUTS,
}
# Methods of vLLM's own drafter.
_STOCK = {
    "_sample_draft_tokens": CHOICE,
    "build_per_group_and_layer_attn_metadata": METADATA,
    "prepare_inputs_padded": INPUTS,
    "prepare_next_token_ids_padded": INPUTS,
    "set_inputs_first_pass": INPUTS,
    "_update_positions_dependent_metadata": INPUTS,
}


def has_draft_model(runner: Any) -> bool:
    """Whether there is anything to tell apart."""
    return model_owner(runner) is not None


@contextlib.contextmanager
def timed_parts(runner: Any) -> Iterator[dict[str, float]]:
    """While it lasts, the parts of drafting are timed, each without those inside it.

    Args:
        runner: a model runner with a draft model, ours or vLLM's.

    Yields:
        Seconds by part, growing.

    Raises:
        AttributeError: the drafter has other methods than those named here.
    """
    from vllm_spec_plugin.proposers.draft_model.branching import GrowingBranches
    from vllm_spec_plugin.proposers.draft_model.growing import GrowingDrafts

    owner = model_owner(runner)
    stopwatch = Stopwatch()
    with contextlib.ExitStack() as stack:

        def time(thing: Any, name: str, part: str) -> None:
            stack.enter_context(replaced(thing, name, lambda function: stopwatch.timed(part, function)))

        # vLLM drafts in the first, the plugin in the second.
        time(runner, "propose_draft_token_ids", REST)
        time(runner, "take_draft_token_ids", REST)
        if owner is runner.drafter:
            methods = _STOCK
            stack.enter_context(replaced(owner, "model", lambda model: TimedModel(model, stopwatch, FORWARD, FORWARD)))
        else:
            methods = _OURS
            time(owner._pass, "run", FORWARD)
            time(owner._pass, "prepare", METADATA)
            for growing in (GrowingDrafts, GrowingBranches):
                time(growing, "grow", CHOICE)
                time(growing, "finish", CHOICE)
        for name, part in methods.items():
            time(owner, name, part)
        yield stopwatch.seconds


def model_owner(runner: Any) -> Any:
    """Returns what holds a runner's draft model: vLLM's drafter, or our draft engine; None without one."""
    drafter = getattr(runner, "drafter", None)
    if hasattr(drafter, "model"):
        return drafter
    return getattr(drafter, "engine", None)
