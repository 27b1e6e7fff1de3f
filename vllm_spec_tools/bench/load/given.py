"""Requests of files of prompts: which of them are sent, and with which parameters."""

import json
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.load.workloads import LEAST_TOKENS, WORKLOADS, LoadSizes, tokens_of_run
from vllm_spec_tools.bench.records import LoadJob, LoadRequest, Phase
from vllm_spec_tools.engines import memory
from vllm_spec_tools.prompts import GivenPrompt, Message, PromptFile, load_tokenizer, read_files
from vllm_spec_tools.report import plural


@dataclass(frozen=True)
class Choice:
    """Choice of a file's prompts, and what their requests get.

    Attributes:
        temperature: of prompts that name none.
        num_tokens: maximum output tokens of prompts that name none.
        may_end: whether they end where the model ends them, or at their own maximum; else none gets more than
            `num_tokens`.
        context: longest text of the model, output included; None is not known.
        per_category: number of prompts of each category, drawn by `seed`; None are all.
    """

    temperature: float
    num_tokens: int
    may_end: bool
    context: int | None = None
    per_category: int | None = None
    seed: int = 0

    def request(self, given: GivenPrompt, tokenizer: Any) -> LoadRequest | None:
        """Returns the request of a prompt; None if it, or its conversation, does not fit the context.

        Raises:
            UserError: the model has no chat template, or it does not take the messages.
        """
        own = given.max_tokens or self.num_tokens
        tokens = max(own if self.may_end else min(own, self.num_tokens), LEAST_TOKENS)
        whole = given
        if given.turns:
            later = [(("assistant", "-"), ("user", turn)) for turn in given.turns]
            added = [Message(role=role, content=content) for turn in later for role, content in turn]
            whole = given.model_copy(update={"messages": [*(given.messages or ()), *added]})
        length = len(tokenizer(whole.render(tokenizer)).input_ids) + (1 + len(given.turns)) * tokens
        if self.context is not None and length > self.context:
            return None
        return LoadRequest(
            given.workload,
            given.render(tokenizer),
            self.temperature if given.temperature is None else given.temperature,
            tokens,
            given.prediction or "",
            self.may_end,
            "" if given.output_schema is None else json.dumps(given.output_schema),
            tuple((one.role, one.content) for one in given.messages or () if given.turns),
            tuple(given.turns),
        )


def context_of(model: str, limit: int | None) -> int | None:
    """Returns the longest text that an engine takes; None if it is not known.

    Args:
        limit: the engine's `max_model_len`; None is the model's, -1 what fits.
    """
    return min((one for one in (memory.context_of(model), limit) if one is not None and one > 0), default=None)


def given_requests(
    paths: Sequence[Path], workload: Sequence[str], model: str, choice: Choice
) -> tuple[tuple[LoadRequest, ...], list[dict[str, Any]]]:
    """Returns the requests of files of prompts in their order, and a record of each file.

    Args:
        workload: values of `--workload`: built-in ones, which take the texts of all categories, or categories.
        model: folder or hub name of the model that reads them.

    Raises:
        UserError: a workload is neither; a file has a mistake; no prompt fits the context; see also `Choice.request`.
    """
    files = read_files(paths)
    names = ", ".join(map(str, paths))
    own = dict.fromkeys(prompt.workload for file in files for prompt in file.prompts)
    for name in workload:
        if name not in (*WORKLOADS, *own):
            where = f"; it is no category of {names}: give one of these" if paths else ""
            raise UserError(f"--workload: got {name!r}; allowed: {', '.join((*WORKLOADS, *own))}{where}")
    if not files:
        return (), []
    wanted = workload if workload and own.keys() >= set(workload) else own
    left = dict.fromkeys(wanted, choice.per_category or sys.maxsize)
    tokenizer = load_tokenizer(model)
    found = [_chosen(file, left, tokenizer, choice) for file in files]
    requests = tuple(request for own, _ in found for request in own)
    sent = {request.kind for request in requests}
    lost = [name for name in (workload or own) if name in own and name not in sent]
    if lost and (workload or not sent):
        raise UserError(
            f"--prompts {names}: no prompt of {', '.join(lost)} fits the model's context of {choice.context} tokens "
            "with its output; allowed: shorter prompts; give fewer --request-tokens, or other --workload"
        )
    return requests, [record for _, record in found]


def _chosen(
    file: PromptFile, left: dict[str, int], tokenizer: Any, choice: Choice
) -> tuple[list[LoadRequest], dict[str, Any]]:
    """Returns the requests of a file and its record.

    Args:
        left: by category, the maximum number still to be sent. What this file sends is taken off.
    """
    categories = dict.fromkeys(one.workload for one in file.prompts)
    places, too_long = dict[int, LoadRequest](), 0
    for category in (name for name in categories if name in left):
        own = [place for place, one in enumerate(file.prompts) if one.workload == category]
        if choice.per_category is not None:
            random.Random(f"{choice.seed} {category}").shuffle(own)
        for place in own:
            if not left[category]:
                break
            request = choice.request(file.prompts[place], tokenizer)
            if request is None:
                too_long += 1
                continue
            places[place] = request
            left[category] -= 1
    record = {"file": file.path.name, "sha256": file.sha256, "prompts": len(file.prompts), "sent": len(places)}
    record |= {"too_long": too_long, "without_question": file.num_empty, "categories": list(categories)}
    return [places[place] for place in sorted(places)], record


def file_notes(records: Sequence[Mapping[str, Any]], context: int | None) -> Iterator[str]:
    """Yields a sentence per file: what was sent, and what was left out."""
    for one in records:
        kinds = f" in {len(one['categories'])} categories" if len(one["categories"]) > 1 else ""
        count = plural(one["prompts"], "prompt") + kinds
        text = f"{one['file']} (SHA-256 {one['sha256']}): {count}, {one['sent']} sent."
        if one["too_long"]:
            text += f" {one['too_long']} left out: with their output they exceed the context of {context} tokens."
        if one["without_question"]:
            text += f" {plural(one['without_question'], 'conversation')} without a question left out."
        yield text


def given_job(
    requests: Sequence[LoadRequest], streams: int, number: int, sizes: LoadSizes, seed: int, *, is_warm_up: bool
) -> LoadJob:
    """Builds every arm's job in a round with requests of a file; the warm-up begins with the last ones.

    A run is long enough for the last turn of the longest conversation. Each round begins with requests that the ones
    before did not reach, until all had their turn.
    """
    num_tokens = tokens_of_run(streams, sizes, is_warm_up=is_warm_up)
    longest = max((1 + len(one.turns)) * one.num_tokens for one in requests)
    if not is_warm_up and any(one.turns for one in requests):
        num_tokens = max(num_tokens, streams * longest)
    in_a_round = max(streams, math.ceil(num_tokens / longest))
    first = (-streams if is_warm_up else number * in_a_round) % len(requests)
    in_turn = (*requests[first:], *requests[:first])
    return LoadJob(streams, (Phase(in_turn, num_tokens),), seed + number)
