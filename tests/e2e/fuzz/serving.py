"""Starts one of the servers, and fuzzes it."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import yaml

from tests.e2e.fuzz.cases import Case, Cases
from tests.e2e.fuzz.run import Outcome, fuzz
from tests.e2e.fuzz.servers import NUM_DRAFT_TOKENS, SERVERS, Served
from tests.engine import texts
from tests.engine.exact import Reference
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.server_metrics import ServerMetrics
from vllm_spec_tools.engines.serving import Server

SEED = 1
# Prompts are computed in chunks, and few blocks make requests be preempted.
_OPTIONS = (
    *("--max-model-len", "512", "--block-size", "32", "--num-gpu-blocks-override", "40"),
    *("--max-num-seqs", "12", "--max-num-batched-tokens", "256", "--enforce-eager"),
    # Else a model may write blanks for as long as it may write.
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
)
_STARTS_S = 900


def drawn(served: Served, size: int, reference: Reference, seed: int = SEED) -> Sequence[Case]:
    """Draws requests to a server."""
    prompts = [*texts.repetitive(reference), *texts.sources(reference, 24, 200)]
    ends = [reference.tokenizer.decode(prompt[-60:]) for prompt in prompts]
    cases = Cases(seed, prompts, ends, NUM_DRAFT_TOKENS)
    return [cases.draw(served.methods, takes_predictions=served.takes_predictions) for _ in range(size)]


_server = functools.partial(Server, model_path("target"))


def serve_and_fuzz(
    name: str,
    size: int,
    reference: Reference,
    folder: Path,
    seed: int = SEED,
    serve: Callable[..., Server] = _server,
) -> Outcome:
    """Starts one of `SERVERS`, and sends it `size` requests, with drafts and without.

    Args:
        name: of the server.
        size: number of requests.
        reference: the target.
        folder: for the configuration, and the server's log.
        seed: of the requests.
        serve: makes a server of the bundled target.
    """
    served, model, path = SERVERS[name], str(model_path("target")), folder / "plugin.yaml"
    path.write_text(yaml.safe_dump(served.config))
    with serve(path, extra_args=_OPTIONS, environment=served.environment({}), log_path=folder / "log") as server:
        cases = drawn(served, size, reference, seed)
        outcome = asyncio.run(fuzz(server, model, cases, reference, same_seeds=served.same_seeds))
        if not outcome.faults:
            metrics = server.metrics()
            names = {"drafted": "spec_decode_num_draft_tokens", "accepted": "spec_decode_num_accepted_tokens"}
            names["preempted"] = "num_preemptions"
            outcome.counts.update({key: int(metrics[f"vllm:{of}_total"]) for key, of in names.items()})
            exposition = ServerMetrics.parse(httpx.get(f"{server.base_url}/metrics", trust_env=False).text)
            errors = exposition.by_label("vllm_spec_plugin:proposer_errors_total", "reason")
            outcome.reasons = {reason for reason, count in errors.items() if count}
    return outcome
