"""The text of the benchmark: which token a scripted target answers with. Pure."""

import torch

# Tokens after which a text that repeats itself begins anew.
_PERIOD = 16
# Of four draft tokens three are accepted, whatever the proposer.
_REJECTED_OF = 4


def prompt(row: int, num_tokens: int, vocab_size: int, *, repeats: bool) -> list[int]:
    """Returns the prompt of a request, which the script continues.

    Args:
        row: number of the request.
        num_tokens: length of the prompt.
        vocab_size: of the target; a multiple of 16 if the text repeats.
        repeats: whether the text has a period of 16 tokens, so that n-grams match; else none occurs twice.
    """
    first = (row * _PERIOD if repeats else row * 37) % vocab_size
    if repeats:
        return [first + i % _PERIOD for i in range(num_tokens)]
    return [(first + i) % vocab_size for i in range(num_tokens)]


def next_tokens(token_ids: torch.Tensor, positions: torch.Tensor, vocab_size: int, *, repeats: bool) -> torch.Tensor:
    """Returns the target's token after each row of a step.

    After a token comes its successor. Before a draft token it is that draft token three times in four, and else the
    successor's successor.

    Args:
        token_ids: [num_tokens] int, requests one after the other.
        positions: [num_tokens] int, of the tokens in their texts.
        vocab_size: of the target.
        repeats: as in `prompt`.

    Returns:
        [num_tokens] int64.
    """
    token_ids, positions = token_ids.long(), positions.long()
    successors = _successors(token_ids, vocab_size, repeats)
    is_before_draft = positions[1:] == positions[:-1] + 1
    is_rejected = (positions[:-1] * 40503 + token_ids[:-1] * 30011 >> 7) % _REJECTED_OF == 0
    drafted = torch.where(is_rejected, _successors(successors[:-1], vocab_size, repeats), token_ids[1:])
    successors[:-1] = torch.where(is_before_draft, drafted, successors[:-1])
    return successors


def _successors(token_ids: torch.Tensor, vocab_size: int, repeats: bool) -> torch.Tensor:
    if repeats:
        return token_ids - token_ids % _PERIOD + (token_ids + 1) % _PERIOD
    return (token_ids + 1) % vocab_size
