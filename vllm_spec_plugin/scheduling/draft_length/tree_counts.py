"""Counts of trees and of their accepted tokens; compiled code only."""

from vllm_spec_plugin.jit import compiled
from vllm_spec_plugin.scheduling.draft_length.arrays import Floats, Ints

# Places in the counts: trees that were asked for, trees that there were, their accepted tokens.
ASKED, DRAFTED, ACCEPTED = range(3)
# The counts of all requests remember with a half-life of 4,096 trees.
_FADING = 0.5 ** (1 / 4096)


@compiled
def count_trees(
    counts: Floats,
    sums: Floats,
    half_life: float,
    rows: Ints,
    asked: Ints,
    drafted: Ints,
    accepted: Ints,
    num_tokens: Ints,
) -> None:
    """Adds one step of each of n requests, in their order: its tree, if there was one, then the growth of its text.

    Args:
        counts: [rows, 3], of each request; changed in place.
        sums: [3], of all; changed in place.
        half_life: tokens in which a request's counts halve.
        rows: [n], whose.
        asked: [n], tokens of the tree that was asked for; 0 if none was.
        drafted: [n], how many there were.
        accepted: [n], how many of them were kept.
        num_tokens: [n], by which the texts grew.
    """
    for place in range(len(rows)):
        own = counts[rows[place]]
        if asked[place]:
            sums *= _FADING
            own[ASKED] += 1
            sums[ASKED] += 1
            if drafted[place]:
                own[DRAFTED] += 1
                sums[DRAFTED] += 1
                own[ACCEPTED] += accepted[place]
                sums[ACCEPTED] += accepted[place]
        if num_tokens[place]:
            own *= 0.5 ** (num_tokens[place] / half_life)


@compiled
def promise_trees(
    counts: Floats,
    sums: Floats,
    strength: float,
    num_nodes: int,
    rows: Ints,
    there: Floats,
    gains: Floats,
    delivered: Floats,
) -> None:
    """Writes what the trees of n requests are expected to bring, as `Expectation.promise` says.

    Args:
        counts: as of `count_trees`.
        sums: as of `count_trees`.
        strength: trees that the average of all is worth against a request's own.
        num_nodes: tokens of a whole tree.
        rows: [n].
        there: [n]; written.
        gains: [n, >= 1]; written.
        delivered: [n, >= 1]; written.
    """
    drafted_of_all = strength * sums[DRAFTED] / sums[ASKED]
    accepted_of_all = strength * sums[ACCEPTED] / sums[DRAFTED]
    gains[:, 1:] = delivered[:, 1:] = 0
    for place in range(len(rows)):
        own = counts[rows[place]]
        there[place] = (own[DRAFTED] + drafted_of_all) / (own[ASKED] + strength)
        per_tree = (own[ACCEPTED] + accepted_of_all) / (own[DRAFTED] + strength)
        gains[place, 0] = there[place] * per_tree
        delivered[place, 0] = there[place] * num_nodes
