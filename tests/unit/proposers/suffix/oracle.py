"""The longest match and its continuation, as plainly as they can be written."""


def longest_match(text: list[int], others: list[list[int]] | None = None) -> int:
    """Counts the last tokens that occurred before, or, with `others`, occur anywhere in them."""
    length = 0
    for wanted in range(1, len(text) + 1):
        if not places(text, wanted, others):
            break
        length = wanted
    return length


def places(text: list[int], length: int, others: list[list[int]] | None = None) -> list[tuple[int, int]]:
    """Finds the places of the last `length` tokens: which text, and its position there."""
    end = text[len(text) - length :]
    if others is None:
        return [(0, start) for start in range(len(text) - length) if text[start : start + length] == end]
    return [
        (number, start)
        for number, other in enumerate(others)
        for start in range(len(other) - length + 1)
        if other[start : start + length] == end
    ]


def followers(texts: list[list[int]], found: list[tuple[int, int]], length: int) -> dict[int, list[tuple[int, int]]]:
    """By token that followed `length` tokens from there: in which places, in their order."""
    by_token: dict[int, list[tuple[int, int]]] = {}
    for number, start in sorted(found):
        if start + length < len(texts[number]):
            by_token.setdefault(texts[number][start + length], []).append((number, start))
    return by_token


def continuation(text: list[int], num_tokens: int, least: float, others: list[list[int]] | None = None) -> list[int]:
    """The most frequent continuation of the longest match, the latest among equals, while it is probable enough."""
    matched = longest_match(text, others)
    texts = [text] if others is None else others
    found, probability = places(text, matched, others) if matched else [], 1.0
    draft: list[int] = []
    while found and len(draft) < num_tokens:
        length = matched + len(draft)
        by_token = followers(texts, found, length)
        if by_token:
            drafted = [token for token in by_token if token >= 0]
            if not drafted:
                break
            best = max(drafted, key=lambda token: (len(by_token[token]), by_token[token][-1]))
            count, total = len(by_token[best]), sum(map(len, by_token.values()))
            found = by_token[best]
        elif others is None:
            # Behind the end of the text comes what was drafted.
            best, count, total = draft[found[-1][1] + length - len(text)], 1, 1
        else:
            break
        probability *= count * length / (total * length + 3)
        if probability < least:
            break
        draft.append(best)
    return draft
