"""Groups tests that share engines on one pytest-xdist worker, so that each engine is started once.

pytest-xdist's own `--dist loadgroup` does nothing with pytest 9.2.
"""

from collections import Counter
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Ids of parameters that say which configuration an engine has.
CONFIGURATIONS = {
    *("lookup", "draft_model", "draft_model_optimal", "cascade", "ngram"),
    *("suffix", "eagle3", "eagle3_cascade"),
    *("medusa", "medusa_tree", "medusa_tree_drawn", "medusa_tree_optimal"),
    *("texts", "vLLM's draft_model", "texts, vLLM's eagle3"),
}
# Files of tests that have one and do not say so, or share a server.
FILES = {
    **dict.fromkeys(("tests/engine/test_stock",), "lookup"),
    **dict.fromkeys(("tests/engine/test_draft_model", "tests/engine/test_draft_edges"), "draft_model"),
    "tests/engine/test_eagle3": "eagle3",
    **dict.fromkeys((f"tests/e2e/test_{name}" for name in ("prediction", "serve", "stream", "tenants")), "server"),
}
# Seconds per test on one core, of files with few but long ones; of others a test takes about `_USUAL`.
SECONDS = {
    "test_exactness": 15,
    **{"test_bench": 60, "test_certify": 30, "test_connectors": 20, "test_demo": 80, "test_fuzz": 60},
    **{"test_ending": 60, "test_refusal": 30, "test_sampling": 30, "test_switched_off": 45},
    **{"test_draft_windows": 15, "test_lifecycle": 40, "test_plan": 120},
    "test_v2": 40,
}
_USUAL = 7


def group(nodeid: str) -> str:
    """The group of a test of engines: its folder, and its configuration or else its file."""
    path, _, name = nodeid.partition("::")
    path = path.removesuffix(".py")
    folder, _, file = path.rpartition("/")
    ids = name.partition("[")[2].rstrip("]").split("-")
    return f"{folder}/{FILES.get(path) or next((one for one in ids if one in CONFIGURATIONS), file)}"


class ByConfiguration(LoadScopeScheduling):
    """Gives each worker a group at a time, in the order of `longest_first`."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def longest_first(items: list[pytest.Item]) -> None:
    """Sorts tests by the time that their groups take: else workers wait for one whose last group is a long one."""
    seconds: Counter[str] = Counter()
    for item in items:
        seconds[group(item.nodeid)] += SECONDS.get(item.path.stem, _USUAL)
    items.sort(key=lambda item: (-seconds[group(item.nodeid)], group(item.nodeid)))
