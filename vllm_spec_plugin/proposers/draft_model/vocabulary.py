"""Compares the vocabularies of two tokenizers."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class VocabularyComparison:
    """Differences of two vocabularies.

    Attributes:
        differing: per id that stands for different tokens, the target's token and the draft model's; None where one of
            them has the token under another id and none under this one.
        unshared: ids that only one of them has, with the token. They only lower acceptance: tokenizers of one family
            differ in their added tokens.
    """

    differing: dict[int, tuple[str | None, str | None]]
    unshared: dict[int, str]


def compare(target: Mapping[str, int], draft: Mapping[str, int]) -> VocabularyComparison:
    """Compares two vocabularies, in order of token ids.

    Args:
        target: id of each token, as in a tokenizer's `get_vocab()`. Two tokens may share an id; the vocabularies then
            agree on it if they have one of these tokens in common.
        draft: id of each token of the draft model.
    """
    if target == draft:
        return VocabularyComparison({}, {})
    agreed = {token_id for _, token_id in target.items() & draft.items()}
    of_target = {token_id: token for token, token_id in target.items() - draft.items()}
    of_draft = {token_id: token for token, token_id in draft.items() - target.items()}
    differing: dict[int, tuple[str | None, str | None]] = {}
    unshared: dict[int, str] = {}
    for token_id in sorted(of_target.keys() | of_draft.keys()):
        names = of_target.get(token_id), of_draft.get(token_id)
        moved = names[0] in draft or names[1] in target
        if moved or (None not in names and token_id not in agreed):
            differing[token_id] = names
        elif token_id not in agreed:
            unshared[token_id] = names[0] if names[0] is not None else str(names[1])
    return VocabularyComparison(differing, unshared)
