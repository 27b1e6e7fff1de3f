"""What both clients ask. Pure."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """Requests of one run, at temperature 0, without an end before their last token.

    Attributes:
        prompts: one per request, in order.
        num_tokens: of each output.
        concurrency: requests at once: who is answered asks the next.
    """

    prompts: tuple[str, ...]
    num_tokens: int
    concurrency: int


def workload(prompts: Sequence[str], count: int, num_tokens: int, concurrency: int) -> Workload:
    """So many requests, the prompts by turns."""
    return Workload(tuple(itertools.islice(itertools.cycle(prompts), count)), num_tokens, concurrency)


def sharegpt(prompts: Sequence[str]) -> str:
    """Prompts in the format of the ShareGPT data set, which `vllm bench serve` reads without pandas.

    The second turn only makes an entry count; the length of the output is given on its command line.
    """
    turns = [[{"from": "human", "value": prompt}, {"from": "gpt", "value": "x"}] for prompt in prompts]
    return json.dumps([{"conversations": conversation} for conversation in turns])
