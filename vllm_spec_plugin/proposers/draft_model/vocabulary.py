"""Whether two tokenizers mean the same by a token id."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Comparison:
    """What two tokenizers disagree on.

    Attributes:
        differing: per id that means one token to the target and another to the draft: both tokens;
            None where one of the two has the token under another id and leaves this one unnamed.
        unshared: ids that only one of the two names, and its token. Drafts rarely get those right,
            and nothing else comes of it: tokenizers of one family differ in their added tokens.
    """

    differing: dict[int, tuple[str | None, str | None]]
    unshared: dict[int, str]


def compare(target: Mapping[str, int], draft: Mapping[str, int]) -> Comparison:
    """Compares two vocabularies, in order of token ids.

    Args:
        target: id of each token, as a tokenizer's `get_vocab()` gives them. Two tokens may share an
            id; the two vocabularies then agree on it if they have one of these tokens in common.
        draft: the same for the draft.
    """
    if target == draft:
        return Comparison({}, {})
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
    return Comparison(differing, unshared)
