"""`vllm-spec bench ngram`: measures cost and acceptance of the proposers of repeated text, without a model."""

from typing import Annotated

import typer

from vllm_spec_plugin.cli.bench_options import CsvFile, HtmlFile, JsonFile, MarkdownFile, PngFile
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
        int, typer.Option(min=1024, help="Tokens of earlier texts in the rows with shared.")
    ] = 1_000_000,
    min_probability: Annotated[
        float, typer.Option(min=0, max=0.99, help="Probability below which a draft of method suffix ends.")
    ] = 0.02,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the synthetic text.")] = 0,
    json_file: JsonFile = None,
    csv: CsvFile = None,
    markdown: MarkdownFile = None,
    png: PngFile = None,
    html: HtmlFile = None,
) -> None:
    """Time lookup, frequency and suffix per request and step, and count what they gain on texts made of source files.

    The synthetic text has repeated phrases. The other texts are made of the standard library's sources with the bundled
    tokenizer. Drafts are checked against the true text.
    """
    import sys
    from dataclasses import replace

    import numpy as np
    from tokenizers import Tokenizer

    from vllm_spec_plugin.cli.console import new_console
    from vllm_spec_plugin.tools.bench.ngram import MAX_NEW_TOKENS, Variants, fill, measure, text_stream
    from vllm_spec_plugin.tools.bench.source_texts import simulate, workloads
    from vllm_spec_plugin.tools.demo import model_path
    from vllm_spec_plugin.tools.demo.corpus import load_corpus
    from vllm_spec_plugin.tools.report import Files, Measurements, Report, StackedBars, Table, check_files, write
    from vllm_spec_plugin.tools.report.provenance import provenance

    files = Files(markdown, json_file, csv, png, html)
    check_files(files)
    measured, synthetic, real = Measurements(), [], []
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
            found = measure(proposer, texts[:size], context, steps, num_draft_tokens)
            median, p99 = np.percentile(found.step_us, (50, 99)).tolist()
            share = found.right / found.drafted if found.drafted else None
            memory = found.num_bytes / num_tokens
            figures = {"step": median / 1e6, "step p99": p99 / 1e6, "correct share": share, "bytes per token": memory}
            measured.add(f"{mode}, {sampling}", "synthetic", size, 0, figures | {"index": found.indexing_ms / 1e3})
            right = "-" if share is None else f"{100 * share:.1f}"
            times = f"{median:.1f}", f"{p99:.1f}", right, f"{found.indexing_ms:.1f}", f"{memory:.0f}"
            synthetic.append([mode, sampling, str(size), *times])
    tokenizer = Tokenizer.from_file(str(model_path("target") / "tokenizer.json"))
    requests = workloads(load_corpus().held_out, lambda text: tokenizer.encode(text).ids, seed)
    accepted: dict[str, dict[str, float]] = {workload: {} for workload in requests}
    ours = replace(variants, vocab_size=tokenizer.get_vocab_size())
    for workload, known in requests.items():
        for (mode, sampling), create in ours.proposers().items():
            gain = simulate(create(), known, num_draft_tokens)
            figures = {"accepted": gain.accepted, "drafted": gain.drafted, "step": gain.step_us / 1e6}
            measured.add(f"{mode}, {sampling}", workload, 1, 0, figures)
            accepted[workload][f"{mode}, {sampling}"] = gain.accepted
            real.append(
                [workload, mode, sampling, f"{gain.accepted:.3f}", f"{gain.drafted:.2f}", f"{gain.step_us:.1f}"]
            )
    best = (f"{workload} {max(found, key=lambda arm: found[arm])}" for workload, found in accepted.items())
    header = ["mode", "sampling", "batch", "median µs", "p99 µs", "correct, %", "index, ms", "bytes/token"]
    title = f"Synthetic text, µs per request and step: {context} tokens of context, K = {num_draft_tokens}"
    note = "index: first step of a request. correct: drafted tokens up to the first wrong one of each draft."
    report = Report(
        "bench ngram",
        "Cost and gain of drafting repeated text",
        provenance(sys.argv[1:], seed, ()),
        [f"Most accepted tokens per step: {'; '.join(best)}."],
        [
            Table(title, header, synthetic, note, text_columns=2),
            Table(
                f"Source texts: accepted and drafted tokens and µs per step, K = {num_draft_tokens}",
                ["workload", "mode", "sampling", "accepted", "drafted", "µs"],
                real,
                text_columns=3,
            ),
        ],
        [
            StackedBars(f"source texts: {workload}", "accepted draft tokens per step", {"accepted": found})
            for workload, found in accepted.items()
        ],
        [
            "code: a file goes on after its first half. edit: the prompt's file with 5% of its lines changed. agent: "
            "each answer is the last one with further lines, after all that was said. again: the same without it."
        ],
        measurements=measured,
        data={"context": context, "steps": steps, "tokens": num_draft_tokens},
    )
    write(report, terminal=new_console(), **vars(files))
