"""`python -m benchmarks coupling`: compares accepted tokens of rejection sampling and of coupled verification."""

from typing import Annotated

import typer

from vllm_spec_tools.cli.options import ReportFiles, grouped


@grouped
def coupling(
    model: Annotated[str, typer.Option(help="Folder of the target. [default: the bundled target]")] = "",
    draft: Annotated[str, typer.Option(help="Folder of the draft model. [default: the bundled one]")] = "",
    temperature: Annotated[list[float] | None, typer.Option(help="Repeatable. [default: 0.7, 1]")] = None,
    tokens: Annotated[int, typer.Option(min=1, max=16, help="Draft tokens per step.")] = 4,
    prompts: Annotated[int, typer.Option(min=1, help="Number of texts.")] = 16,
    steps: Annotated[int, typer.Option(min=1, help="Steps per text.")] = 25,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the noise.")] = 0,
    *,
    files: ReportFiles,
) -> None:
    """Count accepted draft tokens per step: rejection sampling and coupled verification, by kind of drafts.

    The models' logits are replayed without an engine, and without top-k and top-p. By rejection the expectation is
    taken, coupled ones are counted. All kinds draft after the same texts.
    """
    import sys

    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from benchmarks.coupling import KINDS, Logits, accepted_tokens
    from vllm_spec_plugin.models import model_path
    from vllm_spec_tools.bench.prompts import PROMPTS
    from vllm_spec_tools.cli.errors import write_or_fail
    from vllm_spec_tools.report import Measurements, Report, Table
    from vllm_spec_tools.report.provenance import provenance

    torch.set_num_threads(1)
    folders = model or str(model_path("target")), draft or str(model_path("draft"))

    def logits_of(folder: str) -> Logits:
        network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

        def logits(text: object) -> torch.Tensor:
            with torch.inference_mode():
                rows: torch.Tensor = network(torch.tensor([text])).logits[0].float()
            return rows

        return logits

    of_target, of_draft = (logits_of(folder) for folder in folders)
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    measured, table = Measurements(), []
    for value in temperature or (0.7, 1.0):
        rows: list[tuple[float, ...]] = []
        for number, prompt in enumerate(PROMPTS[:prompts]):
            text = list(tokenizer(prompt)["input_ids"])
            rows += accepted_tokens(of_target, of_draft, text, steps, tokens, value, seed + number)
        found = np.array(rows)
        means, errors = found.mean(0).tolist(), (found.std(0) / len(found) ** 0.5).tolist()
        for kind, mean, error in zip(KINDS, means, errors, strict=True):
            measured.add(kind, f"temperature {value:g}", 1, 0, {"accepted": mean, "error": error})
        shown = [f"{mean:.2f} ± {error:.2f}" for mean, error in zip(means, errors, strict=True)]
        table.append([f"{value:g}", *shown])
    report = Report(
        "benchmarks coupling",
        "Coupled verification beside rejection sampling",
        provenance(sys.argv[1:], seed, folders, program="python -m benchmarks"),
        [],
        [Table(f"Accepted of {tokens} draft tokens per step", ["temperature", *KINDS], table, text_columns=1)],
        [],
        [f"Means and standard errors over {prompts} texts of {steps} steps each."],
        measurements=measured,
        data={"tokens": tokens, "prompts": prompts, "steps": steps},
    )
    write_or_fail(report, files)
