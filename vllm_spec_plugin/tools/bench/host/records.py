"""Requests to an engine whose host time is measured, and its results. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HostJob:
    """Decoding steps to measure.

    Attributes:
        num_requests: requests in each step.
        num_steps: steps measured whole; as many again are measured by part, with each clock.
        is_computed: whether the target's forward pass is computed; else it is replaced by a constant.
        repeats: whether the text repeats itself, so that n-grams match.
        temperature: of all requests.
        spec_tokens: most draft tokens of each request, 0 is off; None is as the engine does.
    """

    num_requests: int
    num_steps: int
    is_computed: bool
    repeats: bool = False
    temperature: float = 0.0
    spec_tokens: int | None = None


@dataclass(frozen=True)
class HostAnswer:
    """What steady decoding steps took: no prefill in them, none of the requests ended.

    Attributes:
        cpu_seconds: CPU time of the whole job, prefill included.
        wall: seconds per step, without part timers.
        cpu: CPU seconds of the engine's thread per step, of the same steps.
        host: as that, without the passes of the target and of a draft model.
        wall_parts: seconds per step by part; a part excludes those inside it.
        cpu_parts: as that, CPU seconds.
        output_tokens: per request and step.
        draft_tokens: per request and step, verified ones.
    """

    cpu_seconds: float
    wall: list[float]
    cpu: list[float]
    host: list[float]
    wall_parts: dict[str, list[float]]
    cpu_parts: dict[str, list[float]]
    output_tokens: float
    draft_tokens: float
