"""The kinds of text that heads learn from and are measured on: the data, and what the target wrote itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.progress import Tasks
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.data import Data, Document
from vllm_spec_tools.training.distill import OwnText
from vllm_spec_tools.training.options import RunOptions
from vllm_spec_tools.training.rows import Row, cut

DATA = "data"
HELD_OUT_TOKENS = 65_536  # most that are measured of one kind
_OWN_HELD_OUT_SHARE = 0.05  # of the tokens made to learn from, as many more are made to measure on


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes:
        held_out: rows of documents that no row of any kind's `train` is from, or goes on from.
    """

    name: str
    train: tuple[Row, ...]
    held_out: tuple[Row, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens to learn from."""
        return sum(len(row.tokens) - row.first for row in self.train)


def data_kind(backbone: Backbone, data: Data, options: RunOptions, tasks: Tasks) -> Kind:
    """The documents as rows; no more of them than the steps can use.

    Raises:
        UserError: they are too short to learn from.
    """
    wanted = options.steps * options.batch_tokens
    with tasks.task("reading tokens", min(wanted, sum(len(document.text) for document in data.train))) as advance:
        train = tuple(_rows(backbone, data.train, options, wanted, advance))
    held_out = tuple(_rows(backbone, data.held_out, options, HELD_OUT_TOKENS, lambda done: None))
    if not (train or options.steps == 0) or not held_out:
        raise UserError(
            f"--data {' '.join(options.data)}: no text of {_shortest(options)} tokens "
            f"{'to train on' if held_out else 'to hold out'}; allowed: longer texts or fewer tokens ahead"
        )
    return Kind(DATA, train, held_out)


def own_kinds(backbone: Backbone, own: OwnText, data: Data, options: RunOptions, tasks: Tasks) -> list[Kind]:
    """The target's own continuations, a kind per temperature."""
    kinds = []
    to_train = options.self_distill // len(options.temperatures) if options.steps else 0
    for temperature in options.temperatures if options.self_distill else ():
        name = f"own text at temperature {temperature:g}"
        to_measure = min(HELD_OUT_TOKENS, max(1, round(_OWN_HELD_OUT_SHARE * options.self_distill)))
        rows = []
        for documents, count, part in ((data.train, to_train, "train"), (data.held_out, to_measure, "held out")):
            with tasks.task(f"{name}, {part}", count) as advance:
                made = own.rows(documents, count, temperature, part, advance)
            rows.append(tuple(row for row in made if len(row.tokens) - row.first > options.tokens_ahead))
        if not all(rows[0 if options.steps else 1 :]):
            raise UserError(
                f"--self-distill: the model's own texts end within {options.tokens_ahead} tokens of these data; "
                "allowed: data whose beginnings it goes on from"
            )
        kinds.append(Kind(name, *rows))
    return kinds


def _shortest(options: RunOptions) -> int:
    return options.tokens_ahead + 2


def _rows(
    backbone: Backbone,
    documents: Sequence[Document],
    options: RunOptions,
    num_tokens: int,
    advance: Callable[[int], None],
) -> Iterator[Row]:
    end = backbone.tokenizer.eos_token_id
    done = 0
    for document in documents:
        if done >= num_tokens:
            return
        tokens = backbone.encode(document.text, special=not document.is_rendered)
        if end is not None and not document.is_rendered:
            tokens.append(end)
        done += len(tokens)
        advance(done)
        yield from cut(tokens, options.max_length, _shortest(options))
