"""`python -m benchmarks verification`: compares cost and acceptance of block and token verification."""

from typing import Annotated

import typer

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.cli.options import ReportFiles, grouped

_VOCABULARIES, _REQUESTS, _TOKENS = (512, 32_768, 152_064), (8, 32), (4, 8)


@grouped
def verification(
    vocab_size: Annotated[
        list[int] | None,
        typer.Option(min=2, help="Vocabulary size; repeatable. [default: 512, 32768, 152064]"),
    ] = None,
    requests: Annotated[
        list[int] | None, typer.Option(min=1, help="Requests per step; repeatable. [default: 8, 32]")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, max=64, help="Draft tokens per request in the timed steps.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds; both methods verify in each.")] = 31,
    steps: Annotated[int, typer.Option(min=2, help="Steps over which accepted tokens are averaged.")] = 4000,
    gain_vocab_size: Annotated[
        int, typer.Option(min=2, help="Vocabulary size for the averages of accepted tokens.")
    ] = 1000,
    device: Annotated[str, typer.Option(help="Device on which times are taken: cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Seed of distributions and drafts.")] = 0,
    *,
    files: ReportFiles,
) -> None:
    """Compare block verification of sampled drafts with token verification: time, and accepted tokens.

    Both methods verify the same drafts alternately, in one process; times are medians of the rounds. Logits are
    random normal numbers; the draft's differ from the target's by normal noise. The times are of verification
    alone: on a CPU, one thread's CPU time. Keep the machine otherwise idle.
    """
    import sys

    import torch

    from benchmarks.verification import APART, measure_gain, time_verification
    from vllm_spec_tools.cli.errors import write_or_fail
    from vllm_spec_tools.report import Chart, Line, Measurements, Report, Table, show_spread
    from vllm_spec_tools.report.provenance import provenance

    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise UserError(f"--device {device}: allowed: cpu, or cuda where there is a GPU")
    torch.set_num_threads(1)
    measured, times, gains, ratios = Measurements(), [], [], []
    for size in vocab_size or _VOCABULARIES:
        for level in requests or _REQUESTS:
            place = f"vocabulary {size}", level
            for number, seconds in enumerate(
                time_verification(size, level, tokens, rounds, seed, torch.device(device))
            ):
                for arm, value in seconds.items():
                    measured.add(arm, *place, number, {"seconds": value})
            ratio = measured.ratio("block", "token", *place, "seconds")
            shown = (show_spread(measured.spread(arm, *place, "seconds"), 1e3) for arm in ("token", "block"))
            times.append([str(size), str(level), *shown, show_spread(ratio, digits=3)])
            ratios.append(0.0 if ratio is None else ratio.median)
    more: dict[int, dict[float, float]] = {length: {} for length in _TOKENS}
    for apart in APART:
        for length in _TOKENS:
            gain = measure_gain(apart, length, gain_vocab_size, steps, seed)
            accepted = (f"{gain[name]:.3f}" for name in ("acceptance_rate", "token", "block"))
            gains.append([f"{apart:g}", str(length), *accepted, f"{gain['ratio']:.4f} ± {gain['error']:.4f}"])
            measured.add("block over token", f"K = {length}, draft apart {apart:g}", 1, 0, gain)
            more[length][apart] = 100 * (gain["ratio"] - 1)
    best = max(value for found in more.values() for value in found.values())
    report = Report(
        "benchmarks verification",
        "Block verification beside token by token",
        provenance(sys.argv[1:], seed, ()),
        [
            f"Block verification gives up to {best:.1f}% more tokens per step and takes at most "
            f"{max(ratios):.2f}x as long."
        ],
        [
            Table(
                f"Verification on {device}, ms, K = {tokens}",
                ["vocabulary", "requests", "token", "block", "block / token"],
                times,
                text_columns=0,
            ),
            Table(
                f"Accepted tokens per step, vocabulary {gain_vocab_size}",
                ["draft apart", "K", "acceptance", "token", "block", "tokens/step, block / token"],
                gains,
                text_columns=0,
            ),
        ],
        [
            Chart(
                "gain of block verification over token by token, by how far draft and target differ",
                "standard deviation of the draft's logits from the target's",
                "additional tokens per step, %",
                [Line(f"K = {length}", dict(found)) for length, found in more.items()],
                has_levels=False,
            )
        ],
        [
            f"Times: medians of {rounds} rounds on the same drafts, CPU time of one thread on a CPU. Accepted tokens: "
            f"means of {steps} steps with random distributions. acceptance: of a draft token by itself."
        ],
        measurements=measured,
        data={"tokens": tokens, "rounds": rounds, "steps": steps, "device": device, "gain_vocab_size": gain_vocab_size},
    )
    write_or_fail(report, files)
