"""`python -m benchmarks real-model`: measures a real model on prompts that people know."""

from pathlib import Path
from typing import Annotated

import typer


def real_model(
    prompts: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", show_default=False, help="Has spec_bench, human_eval and gsm8k as .jsonl."),
    ],
    cell: Annotated[
        list[str] | None, typer.Argument(metavar="[CELL]...", help="Cells to measure, such as text-0-1. [default: all]")
    ] = None,
    work: Annotated[Path, typer.Option(help="Folder for prompts, the head and results.")] = Path("results/real_model"),
    model: Annotated[str, typer.Option(help="The target.")] = "smollm2",
    rounds: Annotated[int | None, typer.Option(min=1, help="Fewer rounds than the page's.")] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Train the EAGLE-3 head; else it is the repository's.")
    ] = False,
) -> None:
    """Measure what docs/real_model.md shows; after an interrupt, the same command goes on.

    Cells are PART-TEMPERATURE-STREAMS. A cell's results are written when it ends; a cell that has results is not
    measured again. Run it under `taskset -c 0`, other cells on other cores.
    """
    import shutil
    import subprocess
    import sys
    from importlib.util import find_spec

    from benchmarks.real_model import CONFIGS, HEAD, PARTS, TRAINING, cells, shortened, write_prompts
    from vllm_spec_plugin.schema.errors import UserError

    known = {one.name: one for one in cells()}
    if unknown := [name for name in cell or () if name not in known]:
        raise UserError(f"CELL: got {', '.join(unknown)}; allowed: {', '.join(known)}")
    wanted = [known[name] for name in cell or known]
    write_prompts(prompts, work)
    for config in CONFIGS.glob("*.yaml"):
        shutil.copy(config, work)

    def run(*words: str) -> None:
        typer.echo(f"vllm-spec {' '.join(words)}", err=True)
        program = Path(sys.executable).with_name("vllm-spec")
        if status := subprocess.run([program, *words], cwd=work, check=False).returncode:
            raise typer.Exit(status)

    if train:
        options = [word for option in TRAINING.items() for word in option]
        run("train-eagle3", "--model", model, "--data", "train.jsonl", *options, "--out", "head")
    elif not (work / "head").exists():
        shutil.copytree(HEAD, work / "head")
    for one in wanted:
        results, new = work / f"{one.name}.json", work / f"{one.name}.new.json"
        if results.is_file():
            typer.echo(f"{results}: is there", err=True)
            continue
        needed = PARTS[one.part].needs
        run(*one.command(model, rounds=rounds, has_needs=not needed or find_spec(needed) is not None))
        new.write_text(shortened(new.read_text(), work))
        new.replace(results)
