"""`vllm-spec bench verification`: compares cost and acceptance of block and token verification."""

from typing import Annotated

import typer

from vllm_spec_plugin.cli.bench_options import JsonFile
from vllm_spec_plugin.schema.errors import UserError

_VOCABULARIES, _REQUESTS, _TOKENS = (512, 32_768, 152_064), (8, 32), (4, 8)


def bench_verification(
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
    json_path: JsonFile = None,
) -> None:
    """Compare block verification of sampled drafts with token verification: time, and accepted tokens.

    Both methods verify the same drafts alternately, in one process; times are medians of the rounds. Logits are
    random normal numbers; the draft's differ from the target's by normal noise. The times are of verification
    alone: on a CPU, one thread's CPU time. Keep the machine otherwise idle.
    """
    import json
    from dataclasses import asdict

    import torch

    from vllm_spec_plugin.cli.console import new_console
    from vllm_spec_plugin.tools.bench.input import check_output
    from vllm_spec_plugin.tools.bench.tables import new_table
    from vllm_spec_plugin.tools.bench.verification import APART, measure_gain, time_verification

    console = new_console()
    check_output("--json", json_path)
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise UserError(f"--device {device}: allowed: cpu, or cuda where there is a GPU")
    torch.set_num_threads(1)
    times, gains = [], []
    table = new_table(
        f"time per verification on {device}, K={tokens}, {rounds} rounds",
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
