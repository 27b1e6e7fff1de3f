"""`vllm-spec bench replay`: runs the draft-length policy on recorded outcomes and costs."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.cli.bench_options import Seed


def bench_replay(
    recording: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE...", show_default=False, help="Recordings. [default: the bundled ones]"),
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Workload; repeatable. [default: all]")
    ] = None,
    levels: Annotated[str, typer.Option(metavar="N,...", help="Numbers of concurrent streams.")] = "1,2,4,8,16,32",
    tokens: Annotated[
        int, typer.Option(min=16, help="Output tokens per stream, or per phase of the workload switching.")
    ] = 400,
    request_tokens: Annotated[int, typer.Option(min=2, help="Mean output tokens per request.")] = 96,
    seeds: Annotated[int, typer.Option(min=1, help="Number of replays, each with another seed.")] = 3,
    seed: Seed = 0,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Instead, switch off one mechanism of the policy at a time.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="MECHANISM", help="With --ablate: only this mechanism; repeatable. [default: all]"),
    ] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the tables to this file.")] = None,
) -> None:
    """Replay recorded outcomes and costs under the policy `optimal`, and compare it.

    Closed loop with continuous batching. Each request gets a recorded response; a draft's acceptance is the one
    recorded at its output position. Step times are the recorded ones, with their noise. Equal seeds give equal
    figures. The table has tokens per second without speculation; the ratio of the plugin with K = 0 to that; the
    ratios of `optimal` to no speculation (overall, and in the first 100 steps), to the best fixed draft length and to
    `optimal` with one proposer of a cascade; and verified draft tokens per request and step. With --ablate the table
    has each mechanism's gain in percent.
    """
    from rich.markup import escape

    from vllm_spec_plugin.cli.console import new_console
    from vllm_spec_plugin.tools.bench.input import check_output, whole_numbers, words
    from vllm_spec_plugin.tools.bench.replay.ablation import MECHANISMS
    from vllm_spec_plugin.tools.bench.replay.ablation import ablate as gains_of
    from vllm_spec_plugin.tools.bench.replay.recording import bundled, read
    from vllm_spec_plugin.tools.bench.replay.report import gains_table, rates_table
    from vllm_spec_plugin.tools.bench.replay.settings import WORKLOADS, Sizes, arms_of, replay
    from vllm_spec_plugin.tools.bench.tables import markdown_table, new_table

    console, texts = new_console(), []
    check_output("--markdown", markdown)
    chosen = words("--workload", workload or list(WORKLOADS), list(WORKLOADS))
    mechanisms = words("--without", without or list(MECHANISMS), list(MECHANISMS))
    streams = whole_numbers("--levels", levels, 1024)
    sizes = Sizes(tokens, request_tokens, tuple(range(seed, seed + seeds)))
    for path in recording or bundled():
        known = read(path)
        cells = [(name, count) for name in chosen for count in streams]
        if ablate:
            gains = (gain for name, count in cells for gain in gains_of(known, name, count, sizes, mechanisms))
            table = gains_table(gains)
        else:
            table = rates_table(
                {
                    (name, count): {arm.name: replay(known, arm, name, count, sizes) for arm in arms_of(known)}
                    for name, count in cells
                }
            )
        title = f"{path.stem}: {', '.join(known.methods)}"
        shown = new_table(escape(title), table[0], ("workload", "best", "without"))
        for row in table[1]:
            shown.add_row(*map(escape, row))
        console.print(shown)
        texts.append(f"{title}\n\n{markdown_table([table[0], *table[1]])}\n")
    if markdown is not None:
        markdown.write_text("\n".join(texts), encoding="utf-8")
