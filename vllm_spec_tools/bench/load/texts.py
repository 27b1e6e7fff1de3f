"""Requests whose answers are known in part: files to edit, growing conversations, samples, copied passages."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from vllm_spec_tools.bench.load.records import Request
from vllm_spec_tools.bench.source_files import INSTRUCTION, changed_lines, passages

EDIT, USELESS, AGENT, SAMPLES, RETRIEVAL = "edit", "useless", "agent", "samples", "retrieval"
# Requests that are made of source files.
READS_FILES = (EDIT, USELESS, RETRIEVAL)
# Requests that need the target's answers before the rounds.
ANSWERED = (EDIT, AGENT)
# Of passages in prompts, and of files to edit: with the answer, a file has room in 1,024 tokens of the bundled target.
PASSAGE_LINES, MOST_CHARACTERS = 12, 600
FILE_LINES, MOST_FILE_CHARACTERS = 30, 1100
# Requests of a conversation, and samples of a prompt.
TURNS, NUM_SAMPLES = 4, 8
_BEGUN_LINES = 2
_EDIT = "# Edit this file: rename its functions and print all of it.\n"


@dataclass(frozen=True)
class Texts:
    """Texts that requests are made of.

    Attributes:
        prompts: beginnings of texts, at least one.
        passages: of source files, for `retrieval`, which needs at least two.
        files: for `edit` and `useless`, which need at least two.
        answers: greedy answers of the target, by prompt, for the workloads of `ANSWERED`.
    """

    prompts: tuple[str, ...]
    passages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def lines(self) -> list[str]:
        """Lines that replace others in predictions."""
        return sorted({line for text in self.files for line in text.splitlines() if line.strip()})


def source_texts(prompts: tuple[str, ...], sources: Sequence[str]) -> Texts:
    """Returns texts with passages and files from the middles of source files."""
    passages_of, files_of = (PASSAGE_LINES, MOST_CHARACTERS), (FILE_LINES, MOST_FILE_CHARACTERS)
    return Texts(prompts, passages(sources, *passages_of), passages(sources, *files_of))


def different(texts: Sequence[str], index: int) -> str:
    """Returns one of the texts, a different one for each index: the prefix cache would have an earlier one."""
    turn, which = divmod(index, len(texts))
    return f"# Part {turn + 1}\n{texts[which]}" if turn else texts[which]


def known_request(kind: str, texts: Texts, first: int, index: int, streams: int, num_tokens: int) -> Request:
    """Returns a request of `edit`, `useless`, `agent`, `samples` or `retrieval`.

    `edit` has the target's answer with 5% of its lines changed as its prediction, and none before the answer is known.
    `useless` has another file as its prediction.
    In `agent` all streams have a conversation each, in which a prompt is the last one with its answer and an
    instruction; without the answer, the last one alone. New conversations begin after `TURNS` requests. In `samples`
    eight requests one after the other have the same prompt. In `retrieval` a prompt has a passage twice, then its
    start.

    Args:
        texts: what it is made of.
        index: of the request in its round, from 0.
    """
    if kind == SAMPLES:
        return Request(kind, different(texts.prompts, first + index // NUM_SAMPLES), 1.0, num_tokens)
    if kind == AGENT:
        turn, which = divmod(index, streams)
        conversation = first + turn // TURNS * streams + which
        return Request(kind, _said(texts, different(texts.prompts, conversation), turn % TURNS), 0.0, num_tokens)
    if kind == RETRIEVAL:
        passage = different(texts.passages, first + index)
        begun = "".join(passage.splitlines(keepends=True)[:_BEGUN_LINES])
        return Request(kind, f"{passage}\n{passage}\n{begun}", 0.0, num_tokens)
    prompt = f"{_EDIT}{different(texts.files, first + index)}{_EDIT}"
    if kind == USELESS:
        return Request(kind, prompt, 0.0, num_tokens, different(texts.files, first + index + 1))
    lines = texts.answers.get(prompt, "").splitlines()
    changed = changed_lines(lines, texts.lines, random.Random(prompt)) if lines else []
    return Request(kind, prompt, 0.0, num_tokens, "\n".join(changed))


def _said(texts: Texts, prompt: str, turns: int) -> str:
    for _ in range(turns):
        if prompt not in texts.answers:
            break
        prompt = f"{prompt}{texts.answers[prompt]}\n{INSTRUCTION}"
    return prompt
