"""What each mechanism of the policy `optimal` gains: replayed with it and without it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from vllm_spec_plugin.scheduling.draft_length import optimal as policy
from vllm_spec_plugin.scheduling.draft_length import regression
from vllm_spec_plugin.scheduling.draft_length.acceptance import AcceptanceModel
from vllm_spec_plugin.scheduling.draft_length.comparison import Comparison
from vllm_spec_plugin.scheduling.draft_length.regression import ForgetfulRegression
from vllm_spec_plugin.tools.bench.arms import OPTIMAL
from vllm_spec_plugin.tools.bench.host.stopwatch import replaced
from vllm_spec_plugin.tools.bench.replay.recording import Recording
from vllm_spec_plugin.tools.bench.replay.settings import Arm, optimal, replay
from vllm_spec_plugin.tools.bench.replay.sizes import Sizes

Switch = Callable[[], AbstractContextManager[None]]


def _instead(owner: Any, name: str, value: Any) -> Switch:
    """Replaces a name that is looked up outside compiled code; where it is not there, that is an error."""
    return lambda: replaced(owner, name, lambda _: value)


def _remembering(init: Callable[..., None]) -> Callable[..., None]:
    return lambda self, *args: init(self, *args[:3], forgetting=1e-12)


def _without_skills(learn: Callable[..., None]) -> Callable[..., None]:
    """Has all requests learn as unknown ones."""

    def learn_alike(self: AcceptanceModel, *args: Any, **kwargs: Any) -> None:
        learn(self, *args, **kwargs)
        self.ratings.requests[:] = 0

    return learn_alike


# By name, what switches a mechanism off while a control is made and serves.
MECHANISMS: dict[str, Switch] = {
    "comparison with steps without drafts": _instead(Comparison, "is_off", lambda *_: False),
    "catch-up spread over steps": _instead(policy, "CATCH_UP_STEPS", 1),
    "skills of requests": lambda: replaced(AcceptanceModel, "learn", _without_skills),
    "costs forgotten": lambda: replaced(ForgetfulRegression, "__init__", _remembering),
    "anchors of costs": _instead(regression, "NUM_ANCHORS", 1),
}


def ablate(recording: Recording, workload: str, streams: int, sizes: Sizes, mechanism: str) -> list[float]:
    """Replays a setting with and without a mechanism.

    Returns:
        By seed: tokens per second with it over those without it, less 1.
    """
    all_proposers = tuple(range(len(recording.methods)))
    arm = Arm(OPTIMAL, all_proposers, recording.config.draft_length.tokens, partial(optimal, recording, all_proposers))
    whole = replay(recording, arm, workload, streams, sizes)
    with MECHANISMS[mechanism]():
        without = replay(recording, arm, workload, streams, sizes)
    metric = "tokens_per_second"
    return [own[metric] / other[metric] - 1 for own, other in zip(whole, without, strict=True)]
