"""Random tree topologies."""

from vllm_spec_plugin.verification.topology import topology


def random_topology(rng, max_nodes=6):
    """Empty trees, chains, bushes; sometimes with a rank left out."""
    paths: list[tuple[int, ...]] = [()]
    for _ in range(rng.integers(max_nodes + 1)):
        parent = paths[rng.integers(len(paths))]
        taken = [path[-1] for path in paths if path[:-1] == parent and path]
        paths.append((*parent, max(taken, default=-1) + int(rng.choice([1, 1, 1, 2]))))
    return topology(paths[1:])
