"""Who drafts for a request in a step, and how much. Proposers go by their place in the configuration."""

# A proposer, and the most tokens that it is to draft, at least 1.
Turn = tuple[int, int]
# Who is asked for a draft, in order, until one has a guess; nobody if it is empty. Each proposer at most once.
Turns = tuple[Turn, ...]


def longest(turns: Turns) -> int:
    """The most tokens that any of them is to draft."""
    return turns[0][1] if len(turns) == 1 else max([length for _, length in turns], default=0)


def length_of(turns: Turns, proposer: int | None) -> int:
    """How many tokens that proposer is to draft; 0 if it has no turn."""
    for place, length in turns:
        if place == proposer:
            return length
    return 0


def asked(turns: Turns, source: int | None) -> Turns:
    """The turns that came: up to the proposer that had a guess, or all of them where nobody (None) had."""
    if len(turns) < 2:
        return turns
    places = [place for place, _ in turns]
    return turns[: places.index(source) + 1] if source in places else turns
