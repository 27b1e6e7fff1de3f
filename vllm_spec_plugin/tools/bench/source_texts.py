"""Proposers of repeated text by themselves, drafting texts that are known: how many tokens a step gains."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.proposers.base import Proposer, RequestView
from vllm_spec_plugin.tools.bench.ngram import SCOPE, num_right
from vllm_spec_plugin.tools.bench.source_files import INSTRUCTION, changed_lines

Tokens = npt.NDArray[np.int32]

_FILES, _ROUNDS, _LINES = 12, 6, 12
_MOST_LINES = 160


@dataclass(frozen=True)
class Known:
    """A request whose answer is known.

    Attributes:
        prompt: [num_tokens] int32.
        answer: [num_tokens] int32, what the target says.
    """

    prompt: Tokens
    answer: Tokens


@dataclass(frozen=True)
class Gain:
    """What drafts brought on one workload.

    Attributes:
        accepted: draft tokens per step that were what followed, up to each draft's first wrong one.
        drafted: draft tokens per step.
        step_us: microseconds per request and step on average, without each request's first step.
    """

    accepted: float
    drafted: float
    step_us: float


def workloads(sources: Sequence[str], encode: Callable[[str], list[int]], seed: int) -> dict[str, list[Known]]:
    """Requests made from source files, in the order in which they come.

    `code` goes on with a file after its first half. `edit` prints the prompt's file with 5% of its lines taken from
    other files. In `agent` each answer is the last one with further lines, and each prompt has all that was said
    before; in `again` the prompts are the same, and only earlier answers say what comes.

    Args:
        sources: texts of files.
        encode: a tokenizer.
        seed: of the choice of files and changed lines.
    """
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    files = [lines for text in sources if len(lines := text.splitlines(keepends=True)) >= _ROUNDS * _LINES]
    chosen = [files[place][:_MOST_LINES] for place in rng.permutation(len(files))[:_FILES]]
    others = sorted({line for lines in files for line in lines})

    def known(prompt: str, answer: str) -> Known:
        return Known(np.array(encode(prompt), np.int32), np.array(encode(answer), np.int32))

    found: dict[str, list[Known]] = {name: [] for name in ("code", "edit", "agent", "again")}
    for lines in chosen:
        half = len(lines) // 2
        found["code"].append(known("".join(lines[:half]), "".join(lines[half:])))
        changed = changed_lines(lines, others, chance)
        found["edit"].append(known("".join(lines), "".join(changed)))
        said = ""
        for count in range(_LINES, (_ROUNDS + 1) * _LINES, _LINES):
            answer = "".join(lines[:count])
            found["agent"].append(known(said + INSTRUCTION, answer))
            found["again"].append(known(INSTRUCTION, answer))
            said += INSTRUCTION + answer
    return found


def simulate(proposer: Proposer, requests: Sequence[Known], num_draft_tokens: int, seed: int = 0) -> Gain:
    """Answers requests one after the other: a step's drafts are checked against what follows, and give one token more.

    Args:
        proposer: what drafts.
        requests: in their order; all of one scope.
        num_draft_tokens: most tokens of a draft.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    accepted = drafted = steps = timed = 0
    seconds = 0.0
    for number, request in enumerate(requests):
        text, length = np.concatenate([request.prompt, request.answer]), len(request.prompt)
        while length < len(text):
            count = min(num_draft_tokens, len(text) - length)
            view = RequestView(str(number), text[:length], count, rng.random(count), scope=SCOPE)
            begin = time.perf_counter()
            [draft] = proposer.propose([view])
            if length > len(request.prompt):
                seconds += time.perf_counter() - begin
                timed += 1
            right = num_right(draft.token_ids, text[length:])
            accepted, drafted, steps = accepted + right, drafted + len(draft.token_ids), steps + 1
            length += right + 1
        getattr(proposer, "finish", proposer.forget)(str(number))
    return Gain(accepted / steps, drafted / steps, seconds / max(timed, 1) * 1e6)
