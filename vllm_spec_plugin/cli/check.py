"""`vllm-spec check`: what a configuration file means, or what is wrong with it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel

    from vllm_spec_plugin.config import PluginConfig, SingleConfig


@dataclass(frozen=True)
class ModelFacts:
    """What a configuration can be checked against; None is not known.

    Attributes:
        architecture: class name, as vLLM chooses by.
        vocab_size: tokens.
        context: most tokens of a text, `max_position_embeddings`.
    """

    architecture: str | None
    vocab_size: int | None
    context: int | None


class ModelError(ValueError):
    """A model that cannot be read; str() is the message."""


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Configuration files.", show_default=False)],
    model: Annotated[
        str | None,
        typer.Option(
            help="Also check against this model, a folder or a name on the Hugging Face hub. Its weights are not read.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Check configuration files and print what they come to. Exit code 1 if any is wrong.

    With --model, also whether a draft model fits it, as a server would find at its start.
    """
    from vllm_spec_plugin.config import ConfigError, load_config
    from vllm_spec_plugin.proposers.draft_model.pair import DraftModelError

    failed = False
    facts = None
    if model is not None:
        try:
            facts = read_model(model)
            _print_model(model, facts)
        except ModelError as error:
            typer.echo(str(error), err=True)
            failed = True
    for path in files:
        try:
            config = load_config(path)
            if facts is not None:
                check_against(config, facts, str(path))
            served = model if facts is not None else None
            checked = [
                (
                    proposer,
                    check_drafter(proposer, config.draft_length.tokens, served, config.where(proposer, str(path))),
                )
                for proposer in config.proposers
            ]
        except (ConfigError, DraftModelError) as error:
            typer.echo(str(error), err=True)
            failed = True
        else:
            _print_settings(path, config)
            for proposer, warnings in checked:
                if warnings is not None:
                    typer.echo(f"  {'draft' if proposer.keeps_kv else 'heads'} and target fit")
                for warning in warnings or ():
                    typer.echo(f"warning: {warning}", err=True)
    if failed:
        raise typer.Exit(1)


def read_model(name: str) -> ModelFacts:
    """Reads a model's config, not its weights.

    Raises:
        ModelError: it cannot be read.
    """
    from vllm_spec_plugin.config_errors import show_text

    shown, allowed = show_text(name, 200) or "''", "a model's folder or a hub name"
    try:
        local = Path(name).is_dir()
        has_config = not local or (Path(name) / "config.json").is_file()
    except OSError as error:
        raise ModelError(f"--model {shown}: cannot be read: {error.strerror}; allowed: {allowed}") from None
    if not has_config:
        raise ModelError(f"--model {shown}: this folder has no config.json; allowed: {allowed}")
    try:
        from transformers import AutoConfig

        # Code from the hub is never run for a check, nor asked about.
        whole = AutoConfig.from_pretrained(name, local_files_only=local, trust_remote_code=False)
        config = whole.get_text_config()
    except Exception as error:  # whatever a config from anywhere makes of the library that reads it
        reason = show_text((str(error).strip() or type(error).__name__).splitlines()[0], 300).rstrip(".")
        kind = "the config in this folder" if local else "its config, here or on the hub"
        raise ModelError(f"--model {shown}: cannot read {kind}: {reason}; allowed: {allowed}") from None
    architectures = getattr(whole, "architectures", None) or [None]
    context = getattr(config, "max_position_embeddings", None)
    vocab_size = getattr(config, "vocab_size", None)
    return ModelFacts(
        architectures[0],
        vocab_size if isinstance(vocab_size, int) else None,
        context if isinstance(context, int) else None,
    )


def check_against(config: "PluginConfig", facts: ModelFacts, source: str) -> None:
    """Checks what depends on the model.

    Raises:
        ConfigError: the two do not go together.
    """
    from vllm_spec_plugin.config_errors import Mistake, config_error, show_source

    tokens = config.draft_length.tokens
    if facts.context is not None and tokens >= facts.context:
        text = f"got {tokens}; allowed: below the model's max_position_embeddings, {facts.context}"
        raise config_error(show_source(source), [Mistake("draft_length.tokens", text)])


def check_drafter(proposer: "SingleConfig", num_tokens: int, target: str | None, source: str) -> list[str] | None:
    """Checks a configured draft model or heads: that they are any and, where the target is known, that they fit.

    Args:
        proposer: any one; one without another model has nothing to check.
        num_tokens: most tokens that it drafts.
        target: the model to serve; None is not known.
        source: the configuration file.

    Returns:
        Warnings; None if nothing was compared.

    Raises:
        DraftModelError: the draft or the heads can't be read, or do not fit.
    """
    from vllm_spec_plugin.config import DraftModelConfig, MedusaConfig
    from vllm_spec_plugin.proposers.draft_model.pair import ModelSource, check_name, check_pair

    if isinstance(proposer, MedusaConfig):
        from vllm_spec_plugin.proposers.medusa.check import check_heads

        wanted, is_auto = proposer.num_heads(num_tokens), proposer.tree == "auto"
        served = ModelSource(target) if target is not None else None
        warnings = check_heads(served, proposer.model, wanted, source, needs_accuracy=is_auto)
        return None if target is None else warnings
    if not isinstance(proposer, DraftModelConfig):
        return None
    if target is None:
        check_name(proposer.model, source)
        return None
    # One device and whole contexts: what the server's own options change is checked when it starts.
    return check_pair(ModelSource(target), ModelSource(proposer.model), 1, None, source)


def _print_model(name: str, facts: ModelFacts) -> None:
    from vllm_spec_plugin.config_errors import show_source

    typer.echo(f"{show_source(name)}:")
    rows = [
        ("architecture", facts.architecture),
        ("vocabulary", f"{facts.vocab_size:,} tokens" if facts.vocab_size is not None else None),
        ("context", f"{facts.context:,} tokens" if facts.context is not None else None),
    ]
    _print_table([(key, value or "not given by the model", "") for key, value in rows])


def _print_settings(path: Path, config: "PluginConfig") -> None:
    from vllm_spec_plugin.config_errors import show_source

    typer.echo(f"{show_source(str(path))}: OK")
    _print_table(list(_settings(config, "", given=True)))


def _settings(section: "BaseModel", prefix: str, *, given: bool) -> Iterator[tuple[str, str, str]]:
    from pydantic import BaseModel

    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        is_given = given and key in section.model_fields_set
        name = f"{prefix}{key}"
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{name}.", given=is_given)
            continue
        if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for place, item in enumerate(value):
                yield from _settings(item, f"{name}[{place}].", given=is_given)
            continue
        meanings = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        shown = str(meanings.get("null", "not used") if value is None else value)
        if isinstance(value, bool):
            shown = str(value).lower()  # YAML's word
        if value == 0 and "zero" in meanings:
            shown += f" ({meanings['zero']})"
        if name == "verification.lenience":
            shown += " (exact)" if value == 1 else " (LOSSY: the output differs from the model's own)"
        yield name, shown, "given" if is_given else "default"


def _print_table(rows: list[tuple[str, str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    for key, value, origin in rows:
        style = "bold red" if "LOSSY" in value else "bold" if origin == "given" else ""
        table.add_row(Text(f"  {key}"), Text(value, style=style), Text(origin, style="dim"))
    Console().print(table)
