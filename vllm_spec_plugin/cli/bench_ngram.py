"""`vllm-spec bench ngram`: what the n-gram proposer costs per request and step on this machine."""

from typing import Annotated

import typer

from vllm_spec_plugin.cli.bench_errors import told_errors


def bench_ngram(
    context: Annotated[int, typer.Option(min=64, help="Tokens of text each request starts with.")] = 32768,
    steps: Annotated[int, typer.Option(min=1, help="Steps to measure, of 1 to 4 new tokens each.")] = 2000,
    num_draft_tokens: Annotated[int, typer.Option(min=1, help="K, the most tokens drafted per step.")] = 5,
    batch: Annotated[int, typer.Option(min=1, help="Requests per call in the batched rows.")] = 8,
    min_order: Annotated[int, typer.Option(min=1, help="Shortest n-gram used.")] = 1,
    max_order: Annotated[int, typer.Option(min=1, help="Longest n-gram used.")] = 4,
    window: Annotated[int, typer.Option(min=1, help="Tokens counted by mode frequency.")] = 32768,
    vocab_size: Annotated[int, typer.Option(min=2, help="Vocabulary of the synthetic text.")] = 32768,
    seed: Annotated[int, typer.Option(min=0, help="Of the synthetic text.")] = 0,
) -> None:
    """Time the n-gram proposer per request and step, on synthetic text with repeated phrases.

    "index" is the first step of a request, which takes in its whole prompt. "right" is the share of
    drafted tokens that were what followed, up to the first wrong one of each draft.
    """
    import numpy as np
    from rich.console import Console

    from vllm_spec_plugin.proposers.ngram.proposer import NgramProposer
    from vllm_spec_plugin.tools.bench.input import InputError
    from vllm_spec_plugin.tools.bench.ngram import MAX_NEW_TOKENS, VARIANTS, measure, text_stream
    from vllm_spec_plugin.tools.bench.tables import new_table

    title = f"n-gram proposer: {context} tokens of context, K={num_draft_tokens}, {steps} steps"
    headers = ("mode", "sampling", "batch", "median µs", "p99 µs", "right, %", "index, ms")
    table = new_table(title, headers, words=("mode", "sampling"))
    rng = np.random.default_rng(seed)
    texts = [text_stream(context + MAX_NEW_TOKENS * steps + num_draft_tokens, vocab_size, rng) for _ in range(batch)]
    with told_errors(Console(stderr=True)):
        for mode, sampling in VARIANTS:
            for size in sorted({1, batch}):
                try:
                    proposer = NgramProposer(mode, min_order, max_order, window, sampling, vocab_size)
                except ValueError as error:
                    raise InputError(str(error)) from None
                result = measure(proposer, texts[:size], context, steps, num_draft_tokens)
                median, p99 = np.percentile(result.step_us, (50, 99))
                right = f"{100 * result.right / result.drafted:.1f}" if result.drafted else "-"
                table.add_row(
                    mode, sampling, str(size), f"{median:.1f}", f"{p99:.1f}", right, f"{result.indexing_ms:.1f}"
                )
    Console().print(table)
