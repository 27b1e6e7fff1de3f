"""The proposers of a request in a step, with draft lengths; by their index in the configuration."""

# Index of a proposer, and its maximum draft tokens, at least 1.
PlannedDraft = tuple[int, int]
# Proposers in the order in which they are tried, until one has a draft; each at most once. Empty is no drafts.
DraftPlan = tuple[PlannedDraft, ...]


def longest(draft_plan: DraftPlan) -> int:
    """Returns the maximum draft length of all proposers."""
    return draft_plan[0][1] if len(draft_plan) == 1 else max([length for _, length in draft_plan], default=0)


def length_of(draft_plan: DraftPlan, proposer: int | None) -> int:
    """Returns the draft length of a proposer; 0 if it has none."""
    for index, length in draft_plan:
        if index == proposer:
            return length
    return 0


def tried(draft_plan: DraftPlan, source: int | None) -> DraftPlan:
    """Returns the part of a plan that was tried: up to the proposer that drafted, or all if none (None) did."""
    if len(draft_plan) < 2:
        return draft_plan
    indices = [index for index, _ in draft_plan]
    return draft_plan[: indices.index(source) + 1] if source in indices else draft_plan
