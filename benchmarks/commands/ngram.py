"""`python -m benchmarks ngram`: measures cost and acceptance of the proposers of repeated text, without a model."""

from typing import Annotated

import typer

from vllm_spec_tools.cli.options import ReportFiles, grouped


@grouped
def ngram(
    context: Annotated[int, typer.Option(min=64, help="Prompt tokens of the synthetic text.")] = 32768,
    output_tokens: Annotated[int, typer.Option(min=2, help="Output tokens of the synthetic text.")] = 4096,
    num_draft_tokens: Annotated[int, typer.Option(min=1, help="Maximum draft tokens per step.")] = 8,
    min_order: Annotated[int, typer.Option(min=1, max=16, help="Minimum match length, in tokens.")] = 1,
    shared_tokens: Annotated[
        int, typer.Option(min=1024, help="Tokens of earlier texts in the arms with shared.")
    ] = 1_000_000,
    min_probability: Annotated[
        float, typer.Option(min=0, max=0.99, help="Probability below which a draft of method suffix ends.")
    ] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the texts.")] = 0,
    *,
    files: ReportFiles,
) -> None:
    """Time drafts of repeated text per request and step, and count what they gain.

    Methods suffix and ngram have one proposer. If arctic-inference is installed, vLLM's suffix trees are measured, too.

    The synthetic text is long and has repeated phrases. The other texts are made of the standard library's sources with
    the bundled tokenizer. Requests are answered one after the other; drafts are checked against the true text.
    """
    import sys

    import numpy as np
    from tokenizers import Tokenizer

    from benchmarks.ngram import SYNTHETIC, Known, fill, proposers, simulate, source_texts
    from benchmarks.ngram import synthetic_text as synthetic
    from vllm_spec_plugin.models import model_path
    from vllm_spec_tools.cli.errors import write_or_fail
    from vllm_spec_tools.demo.corpus import load_corpus
    from vllm_spec_tools.report import Measurements, Report, Table
    from vllm_spec_tools.report.provenance import provenance

    rng, tokenizer = np.random.default_rng(seed), Tokenizer.from_file(str(model_path("target") / "tokenizer.json"))
    text, earlier = synthetic(context + output_tokens, rng), synthetic(shared_tokens, rng)
    workloads = {SYNTHETIC: [Known(text[:context], text[context:])]}
    workloads |= source_texts(load_corpus().held_out, lambda source: tokenizer.encode(source).ids, seed)
    measured, rows, accepted = Measurements(), [], {name: dict[str, float]() for name in workloads}
    for workload, requests in workloads.items():
        for arm, create in proposers(min_order, min_probability, shared_tokens).items():
            # Compiles.
            simulate(create(), [Known(text[:32], text[32:64])], num_draft_tokens)
            proposer, kept = create(), len(text)
            if workload == SYNTHETIC and arm.endswith("shared"):
                fill(proposer, earlier, context)
                kept += shared_tokens
            found = simulate(proposer, requests, num_draft_tokens)
            # Short texts leave most of what is reserved unused.
            memory = (found.pop("bytes") / kept or None) if workload == SYNTHETIC else None
            measured.add(arm, workload, 1, 0, found | {"bytes per token": memory})
            accepted[workload][arm] = found["accepted"]
            times = (f"{1e6 * found['step']:.1f}", f"{1e6 * found['step p99']:.1f}", f"{1e3 * found['first step']:.1f}")
            counts = f"{found['accepted']:.3f}", f"{found['drafted']:.2f}"
            rows.append([arm, workload, *counts, *times, "-" if memory is None else f"{memory:.0f}"])
    best = (f"{workload} {max(by_arm, key=lambda arm: by_arm[arm])}" for workload, by_arm in accepted.items())
    report = Report(
        "benchmarks ngram",
        "Cost and gain of drafting repeated text",
        provenance(sys.argv[1:], seed, ()),
        [f"Most accepted tokens per step: {'; '.join(best)}."],
        [
            Table(
                f"Draft tokens per step, and time per request and step, K = {num_draft_tokens}",
                ["arm", "workload", "accepted", "drafted", "median, µs", "p99, µs", "first step, ms", "bytes/token"],
                rows,
                "first step: mean of the steps that read a request's prompt, which median and p99 are without.",
                text_columns=2,
            )
        ],
        notes=[
            f"synthetic: {context} tokens of Zipf-distributed text, half of it in phrases that come back. code: a file "
            "goes on after its first half. edit: the prompt's file with 5% of its lines changed. agent: each answer is "
            "the last one with further lines, after all that was said. again: the same without it. shared: with drafts "
            f"from earlier texts; of synthetic {shared_tokens} tokens."
        ],
        measurements=measured,
    )
    write_or_fail(report, files)
