"""A model's name, and its properties that are readable without weights."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.schema.errors import ConfigError, show_reason, show_source, show_text

ALLOWED = "a model's folder (relative to this file or to the working directory) or its name on the Hugging Face hub"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/\w[\w.-]*)?", re.ASCII)
# Rope types by whose factor vLLM multiplies the context; others include it in max_position_embeddings.
_STRETCHING = ("linear", "dynamic")


def refusal(where: str, text: str) -> ConfigError:
    """An error about the key `proposer.model`.

    Args:
        where: name of the configuration file.
        text: the mistake, the allowed values, and what to do.
    """
    return ConfigError(f"{show_source(where)}: proposer.model: {text}")


def unreadable(model: str, reason: UnreadableError, where: str) -> ConfigError:
    """An error about a draft model whose config cannot be read."""
    what = "" if Path(model).is_dir() else f"there is no folder '{show_text(model, 200)}' and "
    return refusal(where, f"{what}the config of '{show_text(model, 200)}' cannot be read: {reason}; allowed: {ALLOWED}")


@dataclass(frozen=True)
class ModelSource:
    """Source of a model and of its tokenizer.

    Attributes:
        model: a folder or a name on the Hugging Face hub.
        tokenizer: folder or hub name of the tokenizer; None is the model's own.
        revision: branch, tag or commit of the model on the hub; None is the default branch.
        tokenizer_revision: branch, tag or commit of the tokenizer; None is the model's.
        trust_remote_code: whether code that comes with the model may run.
        skip_tokenizer: whether the model is used without a tokenizer, so that none is loaded.
        code_revision: branch, tag or commit of the code that comes with the model; None is the default branch.
    """

    model: str
    tokenizer: str | None = None
    revision: str | None = None
    tokenizer_revision: str | None = None
    trust_remote_code: bool = False
    skip_tokenizer: bool = False
    code_revision: str | None = None

    @property
    def shown(self) -> str:
        """The model's name for messages."""
        return f"'{show_text(self.model, 200)}'"

    @property
    def code(self) -> dict[str, Any]:
        """Keyword arguments of `from_pretrained` about code that comes with the model."""
        revision = {} if self.code_revision is None else {"code_revision": self.code_revision}
        return {"trust_remote_code": self.trust_remote_code} | revision

    @property
    def tokenizer_key(self) -> tuple[str, str | None]:
        """Equal for two sources only if they have the same tokenizer."""
        return self.tokenizer or self.model, self.tokenizer_revision or self.revision


@dataclass(frozen=True)
class ConfigFacts:
    """Properties from a model's config; None is not known.

    Attributes:
        vocab_size: size of the model's vocabulary.
        context: maximum context length, in tokens.
        num_heads: attention heads per layer.
        num_kv_heads: KV heads per layer.
        end_ids: ids of the EOS tokens.
        hidden_size: size of the hidden states.
        num_layers: number of layers.
    """

    vocab_size: int | None
    context: int | None
    num_heads: int | None
    num_kv_heads: int | None
    end_ids: frozenset[int]
    hidden_size: int | None = None
    num_layers: int | None = None


@dataclass(frozen=True)
class Tokens:
    """A tokenizer's vocabulary.

    Attributes:
        ids: id of each token, by its text.
        end_ids: id of the EOS token; empty if there is none.
    """

    ids: dict[str, int]
    end_ids: frozenset[int]


def check_name(model: str, where: str) -> None:
    """Refuses a path that does not exist or has no config, without a request to the hub.

    Raises:
        ConfigError: names the file `where` and the key `proposer.model`.
    """
    shown = f"'{show_text(model, 200)}'"
    folder = Path(model)
    try:
        if folder.is_dir():
            if (folder / "config.json").is_file():
                return
            reason = f"the folder {shown} has no config.json"
        elif folder.exists():
            reason = f"{shown} is not a folder"
        elif _HUB_NAME.fullmatch(model):
            return
        else:
            reason = f"there is no folder {shown}"
    except OSError as error:
        reason = f"{shown} cannot be read: {error.strerror}"
    raise refusal(where, f"{reason}; allowed: {ALLOWED}")


def local_folder(model: str, files: Sequence[str], allowed: str) -> Path:
    """Returns a model's folder; from the hub, its files of the patterns `files` are downloaded.

    Args:
        model: a folder or a name on the Hugging Face hub.
        files: patterns of the files that are needed.
        allowed: the allowed kinds of folders, for messages.

    Raises:
        UnreadableError: there is no such folder, and no such name on the hub.
    """
    folder, shown = Path(model), f"'{show_text(model, 200)}'"
    try:
        if folder.is_dir():
            return folder
        is_file = folder.exists()
    except OSError as error:
        raise UnreadableError(f"{shown}: cannot be read: {error.strerror}") from None
    if is_file:
        raise UnreadableError(f"{shown}: not a folder; allowed: {allowed}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=list(files)))
    except Exception as error:  # a name it does not take, no network, no such repository, no space
        raise UnreadableError(
            f"there is no folder {shown}, and it cannot be downloaded: {show_reason(error)}; allowed: {allowed}, or "
            "its name on the Hugging Face hub"
        ) from None


def read_facts(source: ModelSource) -> ConfigFacts:
    """Reads a model's config and generation config, not its weights.

    Raises:
        UnreadableError: there is no config that transformers can read.
    """
    from transformers import AutoConfig, GenerationConfig

    origin = _origin(source.model, source.revision)
    try:
        full_config = AutoConfig.from_pretrained(source.model, **origin, **source.code)
        config = full_config.get_text_config()
    except Exception as error:  # whatever a config from anywhere makes of the library that reads it
        raise UnreadableError(show_reason(error)) from None
    try:
        generation_ends = GenerationConfig.from_pretrained(source.model, **origin).eos_token_id
    except Exception:  # optional; vLLM reports a broken one
        generation_ends = None
    num_heads = _count(config, "num_attention_heads")
    return ConfigFacts(
        vocab_size=_count(config, "vocab_size"),
        context=context_of(config),
        num_heads=num_heads,
        num_kv_heads=_count(config, "num_key_value_heads") or num_heads,
        end_ids=_ids(getattr(config, "eos_token_id", None)) | _ids(generation_ends),
        hidden_size=_count(config, "hidden_size"),
        num_layers=_count(config, "num_hidden_layers"),
    )


def read_tokens(source: ModelSource) -> Tokens:
    """Reads a model's tokenizer.

    Raises:
        UnreadableError: there is none, or it cannot be read, or `source.skip_tokenizer`.
    """
    if source.skip_tokenizer:
        raise UnreadableError("it is served without one")
    from transformers import AutoTokenizer

    name, revision = source.tokenizer_key
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **_origin(name, revision), **source.code)
        ids: dict[str, int] = tokenizer.get_vocab()
        special, end = tokenizer.all_special_tokens, tokenizer.eos_token_id
    except Exception as error:  # as above, and a tokenizer may be code of its own
        raise UnreadableError(show_reason(error)) from None
    if ids.keys() <= set(special):  # transformers makes up an empty one where files are missing
        raise UnreadableError("it has no tokenizer files")
    return Tokens(ids, _ids(end))


def _origin(name: str, revision: str | None) -> dict[str, Any]:
    """Keyword arguments of `from_pretrained` for `name`; a folder causes no request to the hub."""
    return {"local_files_only": Path(name).is_dir()} | ({} if revision is None else {"revision": revision})


def _count(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)  # some models have a list of one per layer
    return value if isinstance(value, int) and value > 0 else None


def context_of(config: Any) -> int | None:
    """Returns the maximum context length of a model with a transformers config, in tokens; None is not known."""
    length = _count(config, "max_position_embeddings")
    rope = getattr(config, "rope_parameters", None) or {}
    if length is not None and rope.get("rope_type") in _STRETCHING:
        length = int(length * (rope.get("factor") or 1))
    return length


def context_note(shown: str, context: int, max_model_len: int) -> str:
    """Returns the warning about a draft model or head with a shorter context than requests may have."""
    return (
        f"the context of {shown} is {context:,} tokens, requests may have {max_model_len:,}: "
        f"drafts end at token {context:,}"
    )


def _ids(value: int | Iterable[int] | None) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)
