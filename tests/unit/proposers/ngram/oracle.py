"""Both modes as plainly as they can be written, slow and without state."""

from collections import Counter


def lookup(text: list[int], min_order: int, max_order: int, num_draft_tokens: int) -> list[int]:
    """Tries suffixes from long to short and earlier places from late to early."""
    for order in range(max_order, min_order - 1, -1):
        for start in range(len(text) - order - 1, -1, -1):
            if text[start : start + order] == text[-order:]:
                copied = list(text)
                for source in range(start + order, start + order + num_draft_tokens):
                    copied.append(copied[source])
                return copied[len(text) :]
    return []


def ngram_counts(text: list[int], max_order: int) -> dict[tuple[int, ...], int]:
    """How often each n-gram of 1 to `max_order` tokens occurs."""
    return Counter(
        tuple(text[start : start + order])
        for order in range(1, max_order + 1)
        for start in range(len(text) - order + 1)
    )


def ranked_followers(text: list[int], chain: list[int], min_order: int, max_order: int) -> list[tuple[int, int]]:
    """(token, count) of what followed the longest seen end of text + chain, best first; chain is not counted."""
    both = text + chain
    for order in range(min(max_order, len(both) + 1), min_order - 1, -1):
        context = both[len(both) - order + 1 :]
        counts: Counter[int] = Counter()
        last = {}
        for end in range(order - 1, len(text)):
            if text[end - order + 1 : end] == context:
                counts[text[end]] += 1
                last[text[end]] = end
        if counts:
            return sorted(counts.items(), key=lambda item: (-item[1], -last[item[0]]))
    return []


def frequency(text: list[int], min_order: int, max_order: int, num_draft_tokens: int) -> list[int]:
    """The chain of best followers; `text` is the window's."""
    chain: list[int] = []
    while len(chain) < num_draft_tokens:
        followers = ranked_followers(text, chain, min_order, max_order)
        if not followers:
            break
        chain.append(followers[0][0])
    return chain
