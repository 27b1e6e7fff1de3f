"""Checks before weights are loaded whether a draft model can draft for a target."""

from dataclasses import dataclass

from vllm_spec_plugin.proposers.draft_model.vocabulary import compare
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.proposers.model_source import (
    ConfigFacts,
    ModelSource,
    Tokens,
    check_name,
    context_note,
    read_facts,
    read_tokens,
    refusal,
    unreadable,
)
from vllm_spec_plugin.schema.errors import Mistake, config_error, show_source, show_text

__all__ = ["ModelSource", "check_name", "check_pair"]

_SHOWN = 3
_ADVICE = "choose a model of the target's family, with the same tokenizer"


@dataclass(frozen=True)
class _Model:
    """The target or the draft model.

    Attributes:
        name: its name in messages.
        facts: properties from its config.
        tokens: its tokenizer's vocabulary; None is not known.
    """

    name: str
    facts: ConfigFacts
    tokens: Tokens | None

    @property
    def end_ids(self) -> frozenset[int]:
        return self.facts.end_ids | (self.tokens.end_ids if self.tokens else frozenset())


def check_pair(
    target: ModelSource,
    draft: ModelSource,
    tensor_parallel_size: int,
    max_model_len: int | None,
    where: str,
    draft_max_len: int | None = None,
) -> list[str]:
    """Checks that the two vocabularies are equal, and that the draft model can be split like the target.

    Properties of the target that cannot be read are not compared: vLLM serves models that transformers does not
    know. EOS tokens may differ as long as one is shared, as those of a base and a chat model do: only the target's
    EOS tokens stop generation; extra draft EOS tokens merely lower acceptance.

    Args:
        target: the served model; may equal `draft`.
        draft: the value of `proposer.model`.
        tensor_parallel_size: number of devices over which both models are split.
        max_model_len: maximum tokens of a request; None is the context length in the target's config.
        where: name of the configuration file, for messages.
        draft_max_len: value of `proposer.max_model_len`; None is the context in the draft model's config.

    Returns:
        Warnings about lower acceptance, and about properties that could not be checked.

    Raises:
        ConfigError: the draft model cannot be read or does not fit.
    """
    notes: list[str] = []
    check_name(draft.model, where)
    try:
        draft_facts = read_facts(draft)
    except UnreadableError as error:
        raise unreadable(draft.model, error, where) from None
    _check_heads(draft.shown, draft_facts, tensor_parallel_size, where)
    try:
        target_facts = read_facts(target)
    except UnreadableError as error:
        notes.append(f"not compared with the target {target.shown}: its config cannot be read: {error}")
    else:
        max_model_len = max_model_len or target_facts.context
        target_tokens, draft_tokens = _read_both_tokens(target, draft, notes)
        target_model = _Model(target.shown, target_facts, target_tokens)
        draft_model = _Model(draft.shown, draft_facts, draft_tokens)
        _check_vocab_size(target_model, draft_model, where)
        _check_tokens(target_model, draft_model, where, notes)
        _check_ends(target_model, draft_model, where, notes)
    context = _context(draft, draft_facts.context, draft_max_len, where)
    if context is not None and context < (max_model_len or 0):
        notes.append(context_note(draft.shown, context, max_model_len or 0))
    return [f"{show_source(where)}: proposer.model: {note}" for note in notes]


def _context(draft: ModelSource, own: int | None, given: int | None, where: str) -> int | None:
    """Returns the draft model's context; None if it is not known."""
    if given is not None and own is not None and given > own:
        text = f"got {given}, but the context of {draft.shown} is {own:,} tokens; allowed: 1 to {own}, or null"
        raise config_error(show_source(where), [Mistake("proposer.max_model_len", text)])
    return own if given is None else given


def _check_heads(name: str, facts: ConfigFacts, size: int, where: str) -> None:
    heads, kv_heads = facts.num_heads, facts.num_kv_heads

    def can_split(size: int) -> bool:
        # vLLM replicates KV heads if there are fewer than devices.
        return heads is None or (heads % size == 0 and (not kv_heads or kv_heads % size == 0 or size % kv_heads == 0))

    if not can_split(size):
        sizes = ", ".join(str(smaller) for smaller in range(1, size) if can_split(smaller))
        raise refusal(
            where,
            f"the {heads} attention heads and {kv_heads} KV heads of {name} cannot be split over "
            f"tensor_parallel_size {size}; allowed with this draft model: {sizes}; serve with one of these, or choose "
            "another draft model",
        )


def _check_vocab_size(target: _Model, draft: _Model, where: str) -> None:
    expected, found = target.facts.vocab_size, draft.facts.vocab_size
    if expected is not None and found is not None and expected != found:
        raise refusal(
            where,
            f"{draft.name} has a vocabulary of {found:,} tokens, the target {target.name} one of {expected:,} "
            f"(vocab_size in config.json); allowed: a draft model with {expected:,}; {_ADVICE}",
        )


def _read_both_tokens(
    target: ModelSource, draft: ModelSource, notes: list[str]
) -> tuple[Tokens, Tokens] | tuple[None, None]:
    name = f"the target {target.shown}"
    try:
        target_tokens = read_tokens(target)
        if draft.tokenizer_key == target.tokenizer_key:
            return target_tokens, target_tokens
        name = draft.shown
        return target_tokens, read_tokens(draft)
    except UnreadableError as error:
        notes.append(f"the draft model's tokens are not compared with the target's: no tokenizer of {name} ({error})")
        return None, None


def _check_tokens(target: _Model, draft: _Model, where: str, notes: list[str]) -> None:
    if target.tokens is None or draft.tokens is None:
        return
    found = compare(target.tokens.ids, draft.tokens.ids)
    if found.differing:
        first = "; ".join(
            f"{token_id} is {_shown(ours)} in the draft model and {_shown(theirs)} in the target"
            for token_id, (theirs, ours) in list(found.differing.items())[:_SHOWN]
        )
        total = len({*target.tokens.ids.values(), *draft.tokens.ids.values()})
        more = "; ..." if len(found.differing) > _SHOWN else ""
        raise refusal(
            where,
            f"{len(found.differing):,} of {total:,} token ids differ between {draft.name} and the target "
            f"{target.name}: {first}{more}; allowed: a draft model with the target's token ids; {_ADVICE}",
        )
    if found.unshared:
        token_id, token = next(iter(found.unshared.items()))
        notes.append(
            f"{len(found.unshared):,} token ids are in only one of the two tokenizers, such as {token_id} "
            f"{_shown(token)}: drafts of them will rarely be accepted"
        )


def _check_ends(target: _Model, draft: _Model, where: str, notes: list[str]) -> None:
    theirs, ours = target.end_ids, draft.end_ids
    if not theirs or not ours or theirs == ours:
        return
    names = {token_id: token for token, token_id in target.tokens.ids.items()} if target.tokens else {}

    def shown(ids: frozenset[int]) -> str:
        return ", ".join(
            f"{token_id}{f' {_shown(names[token_id])}' if token_id in names else ''}" for token_id in sorted(ids)
        )

    if theirs.isdisjoint(ours):
        raise refusal(
            where,
            f"{draft.name} has the EOS tokens {shown(ours)}, the target {target.name} has {shown(theirs)} "
            "(eos_token_id in config.json, generation_config.json and the tokenizer); allowed: a draft model with an "
            f"EOS token of the target; {_ADVICE}",
        )
    notes.append(
        f"{draft.name} has the EOS tokens {shown(ours)}, the target {target.name} has {shown(theirs)}: only the "
        "target's stop generation; drafts at the end of a response may be accepted less often"
    )


def _shown(token: str | None) -> str:
    return "no token" if token is None else f"'{show_text(token, 30)}'"
