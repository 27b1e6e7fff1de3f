"""The contract of every method's section of a plugin.yaml, with the properties that other packages need."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from vllm_spec_plugin.schema.section import Section

_PACKAGE = Path(__file__).parents[1]

# Configurations are read in every process, also without torch.
if TYPE_CHECKING:
    import torch

    from vllm_spec_plugin.proposers.base import Proposer
    from vllm_spec_plugin.proposers.model_source import ModelSource


class DraftWeights(NamedTuple):
    """A draft model that the worker loads next to the target.

    Attributes:
        model: folder or name on the Hugging Face hub.
        dtype: data type of the weights; None is the target's.
        quantization: vLLM's name of the quantization; None is the checkpoint's.
        revision: branch, tag or commit of the weights on the hub; None is the default branch.
        code_revision: branch, tag or commit of the model's code on the hub; None is the default branch.
        max_model_len: maximum context in tokens; None is what the model's config says.
        architecture: class of the model in vLLM; None is the checkpoint's.
    """

    model: str
    dtype: str | None = None
    quantization: str | None = None
    architecture: str | None = None
    revision: str | None = None
    code_revision: str | None = None
    max_model_len: int | None = None


class FixedTree(NamedTuple):
    """The size of trees whose shape is configured.

    Attributes:
        key: the section's key that has the shape.
        num_nodes: number of draft tokens.
        depth: number of draft tokens on the longest path.
    """

    key: str
    num_nodes: int
    depth: int


@dataclass(frozen=True)
class Target:
    """The served model and its settings.

    Attributes:
        source: names of the model and its tokenizer.
        tensor_parallel_size: number of devices over which it is split.
        max_model_len: maximum tokens of a request; None is the context length in the model's config.
        quantizations: names of vLLM's quantization methods.
        load_format: value of vLLM's --load-format.
    """

    source: "ModelSource"
    tensor_parallel_size: int = 1
    max_model_len: int | None = None
    quantizations: tuple[str, ...] = ()
    load_format: str = "auto"


class ProposerConfig(Section):
    """The section `proposer` of one method, with the properties that other packages need.

    A subclass has a key `method` with one literal value, and a `description` for each key. The defaults below are for a
    method that drafts chains from a request's own text.

    Attributes:
        is_native: whether vLLM itself drafts and verifies; no other property of the method is then used by workers.
        keeps_kv: whether drafts need slots in the KV cache; `draft_weights` then has the model.
        uses_hidden_states: whether it drafts from the target's last hidden states.
        uses_aux_states: whether its model, with `keeps_kv`, takes hidden states of several of the target's layers.
        uses_predictions: whether it drafts from a request's predicted output; requests without one get no drafts of it.
        uses_grammar: whether it drafts from the grammar of structured outputs; requests without get no drafts of it.
        model_keys: keys whose values are a model's folder or hub name. A relative path becomes absolute where it names
            a folder beside the configuration file, or a bundled model (`vllm_spec_plugin/models/...`).
    """

    is_native: ClassVar[bool] = False
    keeps_kv: ClassVar[bool] = False
    uses_hidden_states: ClassVar[bool] = False
    uses_aux_states: ClassVar[bool] = False
    uses_predictions: ClassVar[bool] = False
    uses_grammar: ClassVar[bool] = False
    model_keys: ClassVar[tuple[str, ...]] = ()

    method: str

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """Builds the proposer. Import what it needs here, not where the section is defined.

        Args:
            num_tokens: maximum tokens of a draft.
            vocab_size: size of the target's vocabulary.
            engine: with `keeps_kv` a `DraftEngine`; with `uses_hidden_states` a `StatesEngine`; with `uses_grammar`
                the target's `Tokenizer`; else None.
        """
        raise NotImplementedError

    def check(self, target: Target | None, num_tokens: int, where: str) -> list[str]:
        """Checks before start-up whether the method can draft for a target, without loading weights.

        Args:
            target: the served model; None checks only what needs no target.
            num_tokens: maximum tokens of a draft.
            where: name of the configuration file, for messages.

        Returns:
            Warnings, one line each.

        Raises:
            ConfigError: the method cannot draft for the target.
        """
        return []

    @property
    def is_token_only(self) -> bool:
        """Whether it drafts chains from token ids alone, so that the scheduler's process can draft."""
        return not (self.is_native or self.keeps_kv or self.uses_hidden_states or self.drafts_trees)

    @property
    def drafts_in_one_pass(self) -> bool:
        """Whether a draft of any length takes one forward pass; of vLLM's drafters only."""
        return False

    def on_v2(self, *, with_q: bool) -> "ProposerConfig | None":
        """Returns the section that drafts on vLLM's V2 runner; None if the method needs the V1 runner.

        Args:
            with_q: whether drafts are verified by their probabilities.
        """
        return self if self.is_native or self.is_token_only else None

    @property
    def samples(self) -> bool:
        """Whether on vLLM's V1 runner drafts of sampled requests are sampled, and have probabilities."""
        return False

    @property
    def may_share_noise(self) -> bool:
        """Whether on vLLM's V2 runner drafts may be sampled with the noise of verification."""
        return False

    def draft_from_states(
        self, num_tokens: int, hidden_size: int, vocab_size: int, dtype: "torch.dtype", device: "torch.device"
    ) -> "Callable[[torch.Tensor, int], torch.Tensor]":
        """Builds the drafter of a V2 worker, with `uses_hidden_states`.

        Args:
            num_tokens: maximum tokens of a draft.
            hidden_size: size of the target's hidden states.
            vocab_size: size of the target's vocabulary.
            dtype: data type of the hidden states.
            device: device of the hidden states.

        Returns:
            A function of [n, hidden_size], the states from which each request's last token was sampled, and K, to
            [K, n, vocab_size] logits of draft tokens. It runs in every step, on every rank, without waiting for the
            device.
        """
        raise NotImplementedError

    @property
    def draft_weights(self) -> DraftWeights | None:
        """The draft model with KV in the target's block pool; None without `keeps_kv`."""
        return None

    @property
    def text_scope(self) -> Literal["salt", "global"] | None:
        """The scope of requests without a cache_salt, for methods that draft from finished responses.

        "salt" keeps each request private, "global" shares among them. None is a method that does not use them.
        """
        return None

    @property
    def drafts_trees(self) -> bool:
        """Whether a draft may have branches."""
        return False

    @property
    def fixed_tree(self) -> FixedTree | None:
        """The size of its trees if the configuration fixes their shape, else None."""
        return None

    def tree_size(self, num_tokens: int) -> tuple[int, int]:
        """Returns nodes and depth of a tree with at most `num_tokens` tokens."""
        return (num_tokens, num_tokens) if self.fixed_tree is None else self.fixed_tree[1:]

    def tree_order(self, num_tokens: int) -> tuple[int, ...]:
        """Orders the nodes of a draft of `num_tokens` tokens by path probability; a draft of n tokens has the first n.

        Returns:
            Each node's parent, an earlier node in that order, or -1 for the end of the text.
        """
        return tuple(range(-1, num_tokens - 1))

    @classmethod
    def vllm_settings(cls, draft: str) -> dict[str, Any] | None:
        """Returns the settings of vLLM's own version of the method, `stock:METHOD` in benchmarks.

        Args:
            draft: folder or hub name of a draft model, if the method needs one.

        Returns:
            None if vLLM has no such method.
        """
        return None

    @property
    def models(self) -> tuple[str, ...]:
        """Folders and hub names of all models that the method needs."""
        values = (getattr(self, key) for key in self.model_keys)
        return tuple(value for value in values if isinstance(value, str))

    def resolved(self, folder: Path) -> Self:
        """Returns a copy with absolute paths of bundled models and of those that lie in `folder`, beside the file."""
        given = {key: getattr(self, key) for key in self.model_keys}
        changed = {key: beside(value, folder) for key, value in given.items() if isinstance(value, str)}
        return self.model_copy(update=changed) if changed else self

    @property
    def members(self) -> "tuple[ProposerConfig, ...]":
        """The proposers of this section, in order: this one."""
        return (self,)


def beside(model: str, folder: Path) -> str:
    """Returns the path of a model's folder beside a configuration file; a name that is no such folder stays."""
    if Path(model).is_absolute():
        return model
    try:
        is_bundled = Path(model).parts[:2] == (_PACKAGE.name, "models")
        places = [folder / model, _PACKAGE.parent / model] if is_bundled else [folder / model]
        return next((str(place.resolve()) for place in places if place.is_dir()), model)
    except (OSError, ValueError):  # no name a folder could have
        return model
