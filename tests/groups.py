"""Groups tests that share engines on one pytest-xdist worker, so that each engine is started once.

pytest-xdist's own `--dist loadgroup` does nothing with pytest 9.2.
"""

from xdist.scheduler import LoadScopeScheduling

# Ids of parameters that say which configuration an engine has.
CONFIGURATIONS = {
    *("lookup", "frequency", "draft_model", "draft_model_confident", "draft_model_optimal", "cascade", "ngram"),
    *("suffix", "suffix_drawn", "eagle3", "eagle3_tree", "eagle3_tree_drawn", "eagle3_cascade"),
    *("medusa", "medusa_tree", "medusa_tree_drawn", "medusa_tree_optimal", "multi_draft"),
}
# Files of tests that have one and do not say so.
FILES = {
    "test_faults": "lookup",
    "test_stock": "lookup",
    "test_draft_model": "draft_model",
    "test_draft_edges": "draft_model",
}


def group(nodeid: str) -> str:
    """The group of a test of engines: its folder, and its configuration or else its file."""
    path, _, name = nodeid.partition("::")
    folder, _, file = path.removesuffix(".py").rpartition("/")
    ids = name.partition("[")[2].rstrip("]").split("-")
    return f"{folder}/{FILES.get(file) or next((one for one in ids if one in CONFIGURATIONS), file)}"


class ByConfiguration(LoadScopeScheduling):
    """Gives each worker a group at a time, those of most tests first."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
