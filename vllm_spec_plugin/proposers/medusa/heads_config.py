"""The description of a folder of Medusa heads: sizes, measured accuracies, provenance."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_spec_plugin.proposers.medusa.tensor_file import ALLOWED, TensorFile
from vllm_spec_plugin.proposers.model_files import UnreadableError, read_json
from vllm_spec_plugin.schema.errors import show, show_file, show_text

# Uses of the heads' tokens: the most likely ones for requests at temperature 0, or above, or sampled ones.
GREEDY, SAMPLED, DRAWN = "greedy", "sampled", "drawn"
NUM_RANKS = 10
"""Number of ranks with accuracies and paths; tokens with lower ranks count as missed."""


@dataclass(frozen=True)
class HeadsConfig:
    """Description of a folder of heads, with sizes by the tensors.

    Attributes:
        num_heads: number of heads.
        num_layers: residual blocks per head.
        hidden_size: size of the target's hidden states.
        vocab_size: size of each head's vocabulary.
        base_model: name of the model that they were trained for, as in config.json; None is not known.
        accuracy: [num_heads][NUM_RANKS], probability on held-out positions that the next token has each rank with each
            head; None is not measured.
        paths: by use (`GREEDY`, `SAMPLED`, `DRAWN`), (rank_1, ..., rank_d) and the probability on held-out positions
            that the tokens of these ranks, from 0, of heads 1 to d are all accepted; most probable first, every prefix
            of a path before it; None is not measured.
        measured_on: description of the text that `accuracy` and `paths` were measured on; None is not known.
        provenance: origin of the heads; None is not known.
    """

    num_heads: int
    num_layers: int
    hidden_size: int
    vocab_size: int
    base_model: str | None = None
    accuracy: tuple[tuple[float, ...], ...] | None = None
    paths: Mapping[str, Mapping[tuple[int, ...], float]] | None = None
    measured_on: str | None = None
    provenance: Mapping[str, Any] | None = None


def read_config(folder: Path, file: TensorFile) -> HeadsConfig:
    """Reads config.json of a folder of heads.

    Raises:
        UnreadableError: it cannot be read, or differs from the tensors.
    """
    path = folder / "config.json"
    data = read_json(path, f"allowed: {ALLOWED}, an object with medusa_num_heads; download or write it again")
    counted = {
        # Some published configs name fewer heads than the file has.
        "medusa_num_heads": range(file.num_heads + 1),
        "medusa_num_layers": [file.num_layers],
        "hidden_size": [file.hidden_size],
        "vocab_size": [file.vocab_size],
    }
    for key, allowed in counted.items():
        named, found = data.get(key), allowed[-1]
        if named is not None and named not in allowed:
            raise UnreadableError(
                f"{show_file(path)}: {key}: got {show(named)}; allowed: {found}, as in the tensors of "
                f"{file.path.name}; train or download the heads again"
            )
    base_model, measured_on = data.get("base_model_name_or_path"), data.get("measured_on")
    return HeadsConfig(
        num_heads=file.num_heads,
        num_layers=file.num_layers,
        hidden_size=file.hidden_size,
        vocab_size=file.vocab_size,
        base_model=base_model if isinstance(base_model, str) else None,
        accuracy=_accuracy(data.get("accuracy"), path, file.num_heads),
        paths=_paths(data.get("paths"), path, file.num_heads),
        measured_on=measured_on if isinstance(measured_on, str) else None,
        provenance=data.get("provenance"),
    )


def _accuracy(value: Any, path: Path, num_heads: int) -> tuple[tuple[float, ...], ...] | None:
    if value is None:
        return None
    try:
        rows = tuple(tuple(float(number) for number in row) for row in value)
    except (TypeError, ValueError):
        rows = ()
    if len(rows) != num_heads or not all(len(row) == NUM_RANKS and _are_shares(row) for row in rows):
        raise UnreadableError(
            f"{show_file(path)}: accuracy: allowed: {num_heads} lists, one per head, of {NUM_RANKS} probabilities; "
            "measure the heads again with vllm-spec train-medusa --from ... --steps 0"
        )
    return rows


def _are_shares(numbers: tuple[float, ...]) -> bool:
    return all(0 <= number <= 1 for number in numbers) and sum(numbers) <= 1 + 1e-6


def _paths(value: Any, path: Path, num_heads: int) -> dict[str, dict[tuple[int, ...], float]] | None:
    if value is None:
        return None
    try:
        paths = {
            str(use): {tuple(int(rank) for rank in ranks): float(probability) for ranks, probability in found}
            for use, found in value.items()
        }
    except (AttributeError, TypeError, ValueError):
        paths = {"": {}}
    if not set(paths) <= {GREEDY, SAMPLED, DRAWN} or not all(_is_tree(found, num_heads) for found in paths.values()):
        raise UnreadableError(
            f"{show_file(path)}: paths: allowed: {GREEDY}, {SAMPLED} and {DRAWN}, each pairs of up to {num_heads} "
            f"ranks below {NUM_RANKS} and a probability, each path's prefixes included; measure the heads again with "
            "vllm-spec train-medusa --from ... --steps 0"
        )
    return paths


def _is_tree(paths: Mapping[tuple[int, ...], float], num_heads: int) -> bool:
    return all(
        0 < len(ranks) <= num_heads
        and (len(ranks) == 1 or ranks[:-1] in paths)
        and all(0 <= rank < NUM_RANKS for rank in ranks)
        and 0 <= probability <= 1
        for ranks, probability in paths.items()
    )


def check_sizes(
    config: HeadsConfig,
    model: str,
    hidden_size: int | None,
    vocab_size: int | None,
    num_heads: int | None,
    target: str = "the target",
) -> None:
    """Checks that heads fit a target.

    Args:
        config: description of the heads.
        model: their folder or hub name, for messages.
        hidden_size: hidden size of the target; None is not compared.
        vocab_size: vocabulary size of the target; None is not compared.
        num_heads: number of heads needed; None accepts any.
        target: name of the target, for messages.

    Raises:
        UnreadableError: a size differs; names both.
    """
    shown = f"'{show_text(model, 200)}'"
    for what, found, expected in (
        ("a hidden size of", config.hidden_size, hidden_size),
        ("a vocabulary of", config.vocab_size, vocab_size),
    ):
        if expected is not None and found != expected:
            raise UnreadableError(
                f"the heads in {shown} have {what} {found:,}, {target} one of {expected:,}; allowed: heads with "
                f"{expected:,}; choose heads trained for this target or train them with vllm-spec train-medusa"
            )
    if num_heads is not None and num_heads > config.num_heads:
        raise UnreadableError(
            f"{shown} has {config.num_heads} heads, drafts of {num_heads} tokens need {num_heads}; allowed: up to "
            f"{config.num_heads} tokens per path; draft fewer or train {num_heads} heads with vllm-spec train-medusa"
        )


def check_measured(config: HeadsConfig) -> None:
    """Checks that the heads have measured accuracies.

    Raises:
        UnreadableError: they have none.
    """
    if config.accuracy is None:
        raise UnreadableError(
            "the heads' config.json has no measured accuracies, which proposer.tree auto needs; allowed: a list of "
            "paths for proposer.tree; or measure them: vllm-spec train-medusa --from HEADS --steps 0 writes a copy "
            "with accuracies"
        )
