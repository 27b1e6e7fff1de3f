"""`vllm-spec bench ngram`: measures cost and acceptance of the proposers of repeated text, without a model."""

from typing import Annotated

import typer

from vllm_spec_plugin.schema.errors import UserError


def bench_ngram(
    context: Annotated[int, typer.Option(min=64, help="Context tokens with which each request starts.")] = 32768,
    steps: Annotated[int, typer.Option(min=1, help="Steps to measure, of 1 to 4 new tokens each.")] = 2000,
    num_draft_tokens: Annotated[int, typer.Option(min=1, help="Maximum draft tokens per step.")] = 8,
    batch: Annotated[int, typer.Option(min=1, help="Requests per call in the batched rows.")] = 8,
    min_order: Annotated[int, typer.Option(min=1, help="Minimum match length, in tokens.")] = 2,
    max_order: Annotated[int, typer.Option(min=1, help="Maximum match length of lookup and frequency, in tokens.")] = 5,
    window: Annotated[int, typer.Option(min=1, help="Tokens counted by mode frequency.")] = 32768,
    vocab_size: Annotated[int, typer.Option(min=2, help="Vocabulary of the synthetic text.")] = 32768,
    shared_tokens: Annotated[
        int, typer.Option(min=1024, help="Tokens of ended texts in the rows with shared.")
    ] = 1_000_000,
    min_probability: Annotated[
        float, typer.Option(min=0, max=0.99, help="Below which a draft of method suffix ends.")
    ] = 0.02,
    seed: Annotated[int, typer.Option(min=0, help="Of the synthetic text.")] = 0,
) -> None:
    """Time lookup, frequency and suffix per request and step, and count what they gain on texts made from source files.

    The first table is of synthetic text with repeated phrases: "index" is the first step of a request, which takes in
    its whole prompt; "right" is the share of drafted tokens that were what followed, up to the first wrong one of each
    draft; "bytes/token" is the memory held. The second is of texts made from the standard library's sources with the
    bundled tokenizer; drafts are checked against the true text.
    """
    from dataclasses import replace

    import numpy as np
    from tokenizers import Tokenizer

    from vllm_spec_plugin.cli.console import new_console
    from vllm_spec_plugin.tools.bench.ngram import MAX_NEW_TOKENS, Variants, fill, measure, text_stream
    from vllm_spec_plugin.tools.bench.repeats import simulate, workloads
    from vllm_spec_plugin.tools.bench.tables import new_table
    from vllm_spec_plugin.tools.demo import model_path
    from vllm_spec_plugin.tools.demo.corpus import load_corpus

    title = f"proposers of repeated text: {context} tokens of context, K={num_draft_tokens}, {steps} steps"
    headers = ("mode", "sampling", "batch", "median µs", "p99 µs", "right, %", "index, ms", "bytes/token")
    table = new_table(title, headers, words=("mode", "sampling"))
    rng = np.random.default_rng(seed)
    texts = [text_stream(context + MAX_NEW_TOKENS * steps + num_draft_tokens, vocab_size, rng) for _ in range(batch)]
    ended = text_stream(shared_tokens, vocab_size, rng)
    variants = Variants(min_order, max_order, window, vocab_size, shared_tokens, min_probability)
    for (mode, sampling), create in variants.proposers().items():
        for size in sorted({1, batch}):
            try:
                proposer = create()
            except ValueError as error:
                raise UserError(str(error)) from None
            num_tokens = size * (context + steps * (MAX_NEW_TOKENS + 1) // 2)
            if mode.endswith("shared"):
                fill(proposer, (ended[at : at + context] for at in range(0, shared_tokens, context)))
                num_tokens += shared_tokens
            result = measure(proposer, texts[:size], context, steps, num_draft_tokens)
            median, p99 = np.percentile(result.step_us, (50, 99))
            right = f"{100 * result.right / result.drafted:.1f}" if result.drafted else "-"
            times = f"{median:.1f}", f"{p99:.1f}", right, f"{result.indexing_ms:.1f}"
            table.add_row(mode, sampling, str(size), *times, f"{result.num_bytes / num_tokens:.0f}")
    new_console().print(table)
    tokenizer = Tokenizer.from_file(str(model_path("target") / "tokenizer.json"))
    title = f"source texts: accepted tokens per step, drafted tokens per step, µs per step; K={num_draft_tokens}"
    table = new_table(
        title, ("workload", "mode", "sampling", "accepted", "drafted", "µs"), ("workload", "mode", "sampling")
    )
    found = workloads(load_corpus().held_out, lambda text: tokenizer.encode(text).ids, seed)
    ours = replace(variants, vocab_size=tokenizer.get_vocab_size())
    for workload, requests in found.items():
        for (mode, sampling), create in ours.proposers().items():
            gain = simulate(create(), requests, num_draft_tokens)
            table.add_row(
                workload, mode, sampling, f"{gain.accepted:.3f}", f"{gain.drafted:.2f}", f"{gain.step_us:.1f}"
            )
    new_console().print(table)
