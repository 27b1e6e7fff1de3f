"""The proposers of a request in a step, with draft lengths; by their index in the configuration."""

# Index of a proposer, and its maximum draft tokens, at least 1.
Turn = tuple[int, int]
# Proposers in the order in which they are tried, until one has a draft; each at most once. Empty is no drafts.
Turns = tuple[Turn, ...]


def longest(turns: Turns) -> int:
    """Returns the maximum draft length of all turns."""
    return turns[0][1] if len(turns) == 1 else max([length for _, length in turns], default=0)


def length_of(turns: Turns, proposer: int | None) -> int:
    """Returns the draft length of a proposer; 0 if it has no turn."""
    for index, length in turns:
        if index == proposer:
            return length
    return 0


def tried(turns: Turns, source: int | None) -> Turns:
    """Returns the turns that were tried: up to the proposer that drafted, or all if none (None) did."""
    if len(turns) < 2:
        return turns
    indices = [index for index, _ in turns]
    return turns[: indices.index(source) + 1] if source in indices else turns
