"""`python -m benchmarks restarts`: the first tokens of a restarted server, with and without what it had learned."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_tools.cli.options import ReportFiles, grouped

COLD, WARM, BEFORE = "cold start", "warm start", "before the restart"


@grouped
def restarts(
    config: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A plugin.yaml.")],
    model: Annotated[str, typer.Option(help="The target. [default: the bundled target]")] = "",
    count: Annotated[int, typer.Option("--restarts", min=1, help="Starts of each kind.")] = 10,
    tokens: Annotated[int, typer.Option(min=1, help="Output tokens of each start's first request.")] = 200,
    taught: Annotated[
        int, typer.Option(min=1, help="Requests of the same length that the first server learns of.")
    ] = 8,
    engine: Annotated[list[str] | None, typer.Option(help="Further words of `vllm serve`; repeatable.")] = None,
    *,
    files: ReportFiles,
) -> None:
    """Start servers in turn without and with `draft_length.memory`, and time their first request.

    Before them one server learns from some requests, and is asked what the others are asked. Compilation and other
    first-time costs are in both kinds.
    """
    import shutil
    import sys
    import tempfile
    import time

    import openai
    import yaml

    from vllm_spec_plugin.config import load_config
    from vllm_spec_plugin.models import model_path
    from vllm_spec_plugin.schema.errors import UserError
    from vllm_spec_tools.bench.prompts import PROMPTS
    from vllm_spec_tools.cli.errors import write_or_fail
    from vllm_spec_tools.engines.model_source import model_source
    from vllm_spec_tools.engines.serving import Server
    from vllm_spec_tools.report import Measurements, Report, Table, show_spread
    from vllm_spec_tools.report.provenance import provenance

    target = model_source("--model", model, "target") if model else str(model_path("target"))
    sections = load_config(config).model_dump(mode="json")
    first, *others = PROMPTS
    measured = Measurements()
    names = {name: f"vllm:spec_decode_num_{name}_tokens_total" for name in ("draft", "accepted")}

    def ask(server: Server, prompt: str) -> dict[str, float]:
        client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)
        name = client.models.list().data[0].id
        before, start = server.metrics(), time.perf_counter()
        client.completions.create(
            model=name, prompt=prompt, temperature=0.0, max_tokens=tokens, extra_body={"ignore_eos": True}
        )
        seconds, after = time.perf_counter() - start, server.metrics()
        counts = {name: after.get(key, 0.0) - before.get(key, 0.0) for name, key in names.items()}
        return {"seconds": seconds, **counts}

    with tempfile.TemporaryDirectory(prefix="vllm-spec-restarts-") as name:
        kept, path = Path(name) / "memory", Path(name) / "plugin.yaml"
        sections["draft_length"]["memory"] = str(kept)
        path.write_text(yaml.safe_dump(sections))

        def serve() -> Server:
            return Server(target, path, extra_args=tuple(engine or ()), environment={"VLLM_SPEC_MEMORY": "1"})

        with serve() as server:
            for number in range(taught):
                ask(server, others[number % len(others)])
            measured.add(BEFORE, "first request", 1, 0, ask(server, first))
            time.sleep(2)  # what it learned is written a second after the last request at most
        if not kept.is_dir():
            raise UserError(
                f"{config}: the first server kept nothing; allowed: draft_length.policy: optimal, and 64 steps or more "
                "(--taught, --tokens)"
            )
        learned = shutil.copytree(kept, Path(name) / "learned")
        for number in range(count):
            for kind in (COLD, WARM)[:: -1 if number % 2 else 1]:
                shutil.rmtree(kept, ignore_errors=True)  # a server that made few steps keeps nothing
                if kind == WARM:
                    shutil.copytree(learned, kept)
                with serve() as server:
                    measured.add(kind, "first request", 1, number, ask(server, first))
    metrics = ("seconds", *names)
    rows = [
        [kind, *(show_spread(measured.spread(kind, "first request", 1, metric), digits=2) for metric in metrics)]
        for kind in (BEFORE, COLD, WARM)
    ]
    report = Report(
        "benchmarks restarts",
        "The first request of a restarted server",
        provenance(sys.argv[1:], 0, PROMPTS, {"target": target}, program="python -m benchmarks"),
        [],
        [Table(f"First {tokens} tokens", ["", "seconds", "draft tokens", "accepted tokens"], rows, text_columns=1)],
        [],
        [f"Medians and ranges of {count} starts of each kind, in turn; before the restart one request."],
        measurements=measured,
        data={"tokens": tokens, "restarts": count, "config": config.name},
    )
    write_or_fail(report, files)
