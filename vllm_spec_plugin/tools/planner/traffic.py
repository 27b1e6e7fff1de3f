"""The server's traffic: prompts by workload. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
    """A request of the traffic.

    Attributes:
        text: what is completed.
        workload: what it is an example of.
        temperature: of its sampling.
        num_tokens: that it gets, at least 2.
        prediction: of its output; empty is none.
    """

    text: str
    workload: str
    temperature: float
    num_tokens: int
    prediction: str = ""


@dataclass(frozen=True)
class Workload:
    """Requests of one kind and temperature.

    Attributes:
        name: of the kind, with the temperature where the kind has several.
        share: of the traffic's requests.
        temperature: sampling temperature of its requests.
        num_tokens: that each gets, on average, rounded.
        texts: the prompts.
        predictions: of each prompt's output; none has one if there are none here.
    """

    name: str
    share: float
    temperature: float
    num_tokens: int
    texts: tuple[str, ...]
    predictions: tuple[str, ...] = ()


def workloads_of(prompts: Sequence[Prompt]) -> tuple[Workload, ...]:
    """The traffic by kind and temperature, in order of appearance; each prompt counts alike."""
    kinds = {prompt.workload: {p.temperature for p in prompts if p.workload == prompt.workload} for prompt in prompts}
    found = []
    for kind, temperature in dict.fromkeys((prompt.workload, prompt.temperature) for prompt in prompts):
        own = [prompt for prompt in prompts if (prompt.workload, prompt.temperature) == (kind, temperature)]
        found.append(
            Workload(
                kind if len(kinds[kind]) == 1 else f"{kind}, T = {temperature:g}",
                len(own) / len(prompts),
                temperature,
                round(statistics.fmean(prompt.num_tokens for prompt in own)),
                tuple(prompt.text for prompt in own),
                tuple(prompt.prediction for prompt in own) if any(prompt.prediction for prompt in own) else (),
            )
        )
    return tuple(found)
