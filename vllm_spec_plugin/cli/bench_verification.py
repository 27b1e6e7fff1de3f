"""`vllm-spec bench verification`: what block verification takes and gains beside token by token."""

from typing import Annotated

import typer

from vllm_spec_plugin.cli.bench_options import JsonFile

_VOCABULARIES, _REQUESTS, _TOKENS = (512, 32_768, 152_064), (8, 32), (4, 8)


def bench_verification(
    vocab_size: Annotated[
        list[int] | None,
        typer.Option(min=2, help="Vocabulary, as often as wanted. [default: 512, 32768, 152064]"),
    ] = None,
    requests: Annotated[
        list[int] | None, typer.Option(min=1, help="Requests per step, as often as wanted. [default: 8, 32]")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, max=64, help="K of each request where times are taken.")] = 4,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, in each of which both methods verify.")] = 31,
    steps: Annotated[int, typer.Option(min=2, help="Steps that accepted tokens are averaged over.")] = 4000,
    gain_vocab_size: Annotated[int, typer.Option(min=2, help="Vocabulary where accepted tokens are averaged.")] = 1000,
    device: Annotated[str, typer.Option(help="Where times are taken: cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0, help="Of distributions and drafts.")] = 0,
    json_path: JsonFile = None,
) -> None:
    """Compare verifying drawn drafts by blocks with verifying them token by token: time, and accepted tokens.

    Both methods verify the same drafts in turn, in one process; times are medians of the rounds. Distributions are
    random: logits are normal, the draft's differ from the target's by normal noise. Nothing else of a step is in
    the times, which are a thread's CPU time on a CPU. Leave the machine alone meanwhile.
    """
    import json
    from dataclasses import asdict

    import torch
    from rich.console import Console

    from vllm_spec_plugin.tools.bench.input import InputError, check_output
    from vllm_spec_plugin.tools.bench.tables import new_table
    from vllm_spec_plugin.tools.bench.verification import APART, measure_gain, time_verification

    console = Console()
    check_output("--json", json_path)
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"--device {device}: allowed: cpu, or cuda where there is a GPU")
    torch.set_num_threads(1)
    times, gains = [], []
    table = new_table(
        f"seconds of a verification on {device}, K={tokens}, {rounds} rounds",
        ("vocabulary", "requests", "token, ms", "block, ms", "block / token"),
    )
    for size in vocab_size or _VOCABULARIES:
        for count in requests or _REQUESTS:
            cost = time_verification(size, count, tokens, rounds, seed, torch.device(device))
            figures = f"{cost.token * 1e3:.2f}", f"{cost.block * 1e3:.2f}", f"{cost.ratio:.3f}"
            table.add_row(str(size), str(count), *figures)
            times.append({"vocab_size": size, "requests": count, **asdict(cost)})
    console.print(table)
    headers = ("draft apart", "K", "acceptance", "token", "block", "tokens/step, block / token")
    table = new_table(f"accepted tokens per step, {steps} steps, vocabulary {gain_vocab_size}", headers)
    for apart in APART:
        for length in _TOKENS:
            gain = measure_gain(apart, length, gain_vocab_size, steps, seed)
            accepted = f"{gain.acceptance_rate:.3f}", f"{gain.token:.3f}", f"{gain.block:.3f}"
            table.add_row(f"{apart:g}", str(length), *accepted, f"{gain.ratio:.4f} ± {gain.error:.4f}")
            gains.append({"apart": apart, "tokens": length, **asdict(gain)})
    console.print(table)
    if json_path is not None:
        facts = {"tokens": tokens, "rounds": rounds, "steps": steps, "device": device, "seed": seed}
        facts |= {"gain_vocab_size": gain_vocab_size}
        text = json.dumps({**facts, "times": times, "gains": gains}, indent=1)
        json_path.write_text(text + "\n", encoding="utf-8")
