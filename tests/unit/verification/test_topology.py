"""The shapes of trees, against their paths."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.sizes import examples
from tests.unit.random_cases import random_cases
from tests.unit.verification.topologies import random_topology
from vllm_spec_plugin.verification import topology as module
from vllm_spec_plugin.verification.topology import by_priority, chain, topology


def assert_is_its_paths(tree):
    assert list(tree.choices) == sorted(tree.choices)
    assert tree.num_nodes == len(tree.choices)
    assert tree.depths == tuple(len(path) for path in tree.choices)
    assert tree.depth == max((len(path) for path in tree.choices), default=0)
    for node, parent in enumerate(tree.parents):
        assert tree.choices[node][:-1] == (tree.choices[parent] if parent >= 0 else ())
        assert parent < node
    leaves = [n for n in range(tree.num_nodes) if n not in tree.parents]
    assert [way[-1] for way in tree.chains] == leaves
    for way in tree.chains:
        assert [tree.choices[node] for node in way] == [tree.choices[way[-1]][: i + 1] for i in range(len(way))]


@random_cases(50, 500)
def test_a_tree_is_its_paths_in_any_order_and_however_cut(rng):
    tree, num_nodes, depth = random_topology(rng, 12), rng.integers(14), rng.integers(6)
    paths = [list(path) for path in tree.choices]
    rng.shuffle(paths)
    assert topology(paths) is tree
    assert_is_its_paths(tree)
    assert_is_its_paths(tree.first(num_nodes))
    assert tree.first(num_nodes).choices == tree.choices[:num_nodes]
    assert tree.numbers == tuple(range(tree.num_nodes))
    assert_is_its_paths(tree.within(depth))
    assert tree.within(depth).choices == tuple(path for path in tree.choices if len(path) <= depth)


@random_cases(50, 500)
def test_a_tree_by_priority_is_cut_by_it_and_its_nodes_keep_their_numbers(rng):
    paths = list(random_topology(rng, 12).choices)
    rng.shuffle(paths)
    paths.sort(key=len)
    tree, num_nodes, depth = by_priority(paths), int(rng.integers(14)), int(rng.integers(6))
    assert_is_its_paths(tree)
    assert [tree.choices[node] for node in tree.order] == paths
    assert by_priority([list(path) for path in paths]) is tree
    for part, kept in [
        (tree.first(num_nodes), paths[:num_nodes]),
        (tree.within(depth), [path for path in paths if len(path) <= depth]),
        (tree.first(num_nodes).within(depth), [path for path in paths[:num_nodes] if len(path) <= depth]),
    ]:
        assert_is_its_paths(part)
        assert [part.choices[node] for node in part.order] == kept
        assert [paths[number] for number in part.numbers] == list(part.choices)
        assert part.widths == tuple(
            1 + max(path[-1] for path in kept if len(path) == level) for level in range(1, part.depth + 1)
        )
    for node, path in enumerate(tree.choices):
        assert [tree.choices[each] for each in tree.path_to(node)] == [path[: end + 1] for end in range(len(path))]
    assert tree.path_to(-1) == ()


def test_xformers_and_the_paths_alone_give_the_same_tree():
    """50 random trees (500); seed 0."""
    xformers = module._tree_attention_metadata()
    if xformers is None:
        pytest.skip("xformers is not installed")
    rng = np.random.default_rng(0)
    for _ in range(examples(50, 500)):
        choices = random_topology(rng, 12).choices or ((0,),)
        assert module._from_paths(choices) == module._from_xformers(xformers, choices)


def test_chains_and_the_empty_tree():
    assert chain(3).choices == ((0,), (0, 0), (0, 0, 0))
    assert chain(3).parents == (-1, 0, 1)
    assert chain(3).chains == ((0, 1, 2),)
    assert chain(0).chains == ()
    assert chain(0).depth == 0
    assert topology([]) is chain(0)
    assert topology([(0, 0), (0,)]) is chain(2)
    assert chain(2).first(-1) is chain(0)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([(0,), (1, 0)], r"tree node \[1, 0\] has no parent: \[1\] is not in the tree"),
        ([(0,), (1,), (0,)], r"tree node \[0\] is listed twice"),
        ([()], r"tree node \(\) is not a path"),
        ([0], r"tree node 0 is not a path"),
        (["0"], r"tree node '0' is not a path"),
        ([(0,), (-1,)], r"tree node \[-1\]: rank -1 must be an integer of at least 0"),
        ([(0,), (0, 1.0)], r"tree node \[0, 1.0\]: rank 1.0 must be an integer"),
        ([(True,)], r"tree node \[True\]: rank True must be an integer"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_node_named(choices, message):
    with pytest.raises(ValueError, match=message):
        topology(choices)


def test_a_node_that_is_listed_before_its_parent_is_refused():
    with pytest.raises(ValueError, match=r"tree node \[0, 0\] is listed before its parent"):
        by_priority([(0, 0), (0,)])


IMPORT = """
import sys
from vllm_spec_plugin.verification import topology
topology.chain(4).first(2).within(1)
topology.topology([])
assert "xformers" not in sys.modules
topology._tree_attention_metadata()
assert "xformers" in sys.modules
"""


def test_xformers_is_imported_for_trees_only_and_quietly(full, tmp_path):
    """The real one takes 6 s to import: by default another speaks up in its place, as loudly."""
    environment = dict(os.environ)
    if not full:
        (tmp_path / "xformers/ops").mkdir(parents=True)
        (tmp_path / "xformers/__init__.py").write_text(
            "import logging\nlogger = logging.getLogger('xformers')\nlogger.warning('no kernels')\n"
        )
        (tmp_path / "xformers/ops/tree_attention.py").write_text("class TreeAttnMetadata: ...\n")
        environment["PYTHONPATH"] = str(tmp_path)
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
