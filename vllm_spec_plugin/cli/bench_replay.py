"""`vllm-spec bench replay`: runs the draft-length policy on recorded outcomes and costs."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.cli.options import ReportFiles, grouped
from vllm_spec_plugin.tools.bench.replay.sizes import Sizes


@grouped
def bench_replay(
    recording: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE...", show_default=False, help="Recordings. [default: the bundled ones]"),
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Workload; repeatable. [default: all]")
    ] = None,
    levels: Annotated[str, typer.Option(metavar="N,...", help="Numbers of concurrent streams.")] = "1,2,4,8,16,32",
    ablate: Annotated[
        bool, typer.Option("--ablate", help="Instead, switch off one mechanism of the policy at a time.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="MECHANISM", help="With --ablate: only this mechanism; repeatable. [default: all]"),
    ] = None,
    *,
    sizes: Sizes,
    files: ReportFiles,
) -> None:
    """Replay recorded outcomes and costs under the policy `optimal`, and compare it.

    Closed loop with continuous batching. Each request gets a recorded response; a draft's acceptance is the one
    recorded at its output position. Step times are the recorded ones, with their noise. Equal seeds give equal
    figures. With --ablate the report has each mechanism's gain in percent.
    """
    import sys

    from vllm_spec_plugin.cli.console import write_or_fail
    from vllm_spec_plugin.tools.bench.input import whole_numbers, words
    from vllm_spec_plugin.tools.bench.replay.ablation import MECHANISMS
    from vllm_spec_plugin.tools.bench.replay.ablation import ablate as gains_of
    from vllm_spec_plugin.tools.bench.replay.recording import bundled, read
    from vllm_spec_plugin.tools.bench.replay.report import gains_report, rates_report
    from vllm_spec_plugin.tools.bench.replay.settings import WORKLOADS, arms_of
    from vllm_spec_plugin.tools.bench.replay.settings import replay as rates_of
    from vllm_spec_plugin.tools.report import Measurements
    from vllm_spec_plugin.tools.report.provenance import provenance

    chosen = words("--workload", workload or list(WORKLOADS), list(WORKLOADS))
    mechanisms = words("--without", without or list(MECHANISMS), list(MECHANISMS))
    streams = whole_numbers("--levels", levels, 1024)
    measured = {}
    for path in recording or bundled():
        known = read(path)
        title = f"{path.stem}: {', '.join(known.methods)}"
        measured[title] = found = Measurements()
        for name, count in ((name, count) for name in chosen for count in streams):
            rows: dict[str, list[dict[str, float]]]
            if ablate:
                rows = {m: [{"gain": gain} for gain in gains_of(known, name, count, sizes, m)] for m in mechanisms}
            else:
                rows = {arm.name: rates_of(known, arm, name, count, sizes) for arm in arms_of(known)}
            for arm, by_seed in rows.items():
                for number, values in enumerate(by_seed):
                    found.add(arm, f"{path.stem}: {name}", count, sizes.seed + number, values)
    origin = provenance(sys.argv[1:], sizes.seed, ())
    report = gains_report(measured, origin) if ablate else rates_report(measured, origin)
    write_or_fail(report, files)
