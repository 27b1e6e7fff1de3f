"""Writes docs/support.md from the results of the matrix and from the gates' own tables."""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.assemble import ADDED
from tests.matrix import native
from tests.matrix.cells import COLUMNS, EXACT, NUM_TOKENS, REFUSED, ROWS, TOLERANCE, is_optimal
from tests.ways import page as ways
from vllm_spec_plugin.gate.rules import RULES, SERVED_LAYERS, TESTED_CONNECTORS
from vllm_spec_plugin.metrics.counters import (
    GRAMMAR,
    POOLING,
    PROMPT_EMBEDS,
    RESUMABLE,
    THINKING_BUDGET,
    WITHOUT_DRAFTS,
)
from vllm_spec_plugin.proposers.registry import BUNDLED, method_of

_DOCS = Path(__file__).parents[2] / "docs"
PAGE, RESULTS = _DOCS / "support.md", _DOCS / "support.json"
# What was run of each layout; what is refused of it, the gate says.
_RUN_LAYOUTS = {
    "--tensor-parallel-size": "two CPU ranks; on V2 with suffix and Medusa chains: tests/engine/test_parallel.py",
    "--data-parallel-size": "two replicas behind one endpoint: tests/e2e/test_data_parallel.py",
    "--pipeline-parallel-size": "two stages on V2 with suffix: tests/engine/test_parallel.py",
    "--decode-context-parallel-size": "",
    "--prefill-context-parallel-size": "",
}
# Per reason of the gate of requests: which requests these are, and why they get no drafts.
_REQUESTS = {
    THINKING_BUDGET: (
        "with `thinking_token_budget`",
        "vLLM counts one thinking token per step, and cannot undo it after a rejection",
    ),
    RESUMABLE: (
        "of a streaming session",
        "a stop inside accepted drafts cuts vLLM's text, but not its computed tokens",
    ),
    PROMPT_EMBEDS: ("with embeddings in the prompt", "these positions have no token ids to draft from"),
    POOLING: ("for pooling", "nothing is sampled"),
    GRAMMAR: (
        "sampled ones with structured outputs, with `method: vllm` and `draft_sample_method: probabilistic`",
        "vLLM cuts a sampled draft at the first token that the grammar excludes, which biases outputs",
    ),
}

_HOW = """\
### Method

`make matrix` runs all rows, `make matrix ONLY=gemma3,gpt_oss` only these. Each target is a tiny model of its
architecture with random weights. It has hidden size 128, two layers (one of each kind if there are two) and windows of
64 tokens. The draft model is the target with 5% noise on its weights. The Medusa heads are fitted to its greedy text.
The EAGLE-3 head has random weights, so it is rarely right. Each cell is a separate engine; empty ones were not run:

- One batch of 16 requests, prompts of 20 to 160 tokens in chunks, {tokens} output tokens each. Neighbours have
  different draft lengths; every fourth pair of requests has none (`spec: off`).
- At temperature 0 the outputs equal those of vLLM without the plugin. They may differ only where the logits of vLLM's
  two most likely tokens differ by less than {tie:g}.
- Sampled with seeds, the outputs equal those of the same requests with `spec: off`.
- Drafts were accepted and rejected in both runs; of the cascade, in the two together. In every step the scheduler's KV
  blocks were compared with the worker's.

The cascade has policy `optimal`, which drafts as much as pays on the machine; the others draft in every step. Random
models do not show quality or speed. They show whether vLLM computes the same logits when it verifies drafts.

`make matrix VLLM=0.33.0` runs another version of vLLM, in its environment. All in float32:

"""
_RUN = "- vLLM {vllm}: {dates}, {seconds:.0f} s of one core in all, on {cores} of {cpu}. Versions: {versions}."
_ASSEMBLED = " It has no CPU build: its Python ran with the libraries of an older one."


# Titles of both tables' columns.
_OWN = {name: title for name, (title, _) in COLUMNS.items()}
_NATIVE = {name: column.title for name, column in native.COLUMNS.items()}
_NATIVE_HOW = """\
vLLM's own drafters with the plugin's draft lengths, `method: vllm`: a third of the requests has `spec: off`, a third
`spec_tokens: 2`, and lengths are random between 0 and 4. Outputs at temperature 0 equal those of vLLM without
speculation on the same runner, as above. On V2 there are 8 requests of 24 tokens: its kernels run by
[Triton's interpreter](v2.md). "not runnable here": vLLM alone cannot start this combination on a CPU either.
[v2.md](v2.md) has sampled outputs on V2."""


def release() -> str:
    """The installed vLLM's version, by which results are kept."""
    return version("vllm").partition("+")[0]


def minor(release: str) -> str:
    """A version as the page names it: "0.33" of "0.33.0"."""
    return release.rpartition(".")[0]


def render(results: Mapping[str, Any]) -> str:
    """The page.

    Args:
        results: what `make matrix` wrote, by the version of vLLM.
    """
    verdicts = [{cell["verdict"] for cell in _by_version(results, *key).values()} for key in _keys(results, _OWN)]
    count = {verdict: verdicts.count({verdict}) for verdict in (EXACT, REFUSED)}
    notes: dict[str, int] = {}
    table, vllms = _table(results, _OWN, notes), " and ".join(map(minor, results))
    native_table = _table(results, _NATIVE, notes)
    return "\n".join(
        [
            "# What is served",
            "",
            "<!-- Written by `make matrix` from docs/support.json and the gates' tables; do not edit. -->",
            "",
            "**Decoder-only models whose layers are full or sliding-window attention are served exactly. Others are",
            "refused at start-up, with the reason.**",
            "",
            "## Models",
            "",
            f"Of the {len(verdicts)} cells of this table, {count[EXACT]} are exact and {count[REFUSED]} refused, on",
            f"vLLM {vllms}; {len(verdicts) - sum(count.values())} have another result, or differ between versions.",
            "",
            *table,
            "",
            '"exact" has two figures: draft tokens accepted, and draft tokens rejected, in the test. The cascade has',
            "none, as they depend on the machine. Cells name versions of vLLM where these differ; others are the same",
            f"on {vllms}. Heads here are untrained, so few of their drafts are accepted;",
            "`tests/engine/test_eagle3.py` has a trained one.",
            "",
            "### vLLM's own drafters",
            "",
            *native_table,
            "",
            *_NATIVE_HOW.splitlines(),
            "",
            "### Notes",
            "",
            *(f"{number}. {note}" for note, number in notes.items()),
            "",
            *_trees(results),
            "",
            *_how(results),
            "",
            *_layouts(),
            "",
            *_connectors(),
            "",
            *_requests(),
            "",
            *ways.lines(),
            "",
            *_settings(),
            "",
        ]
    )


def _keys(results: Mapping[str, Any], columns: Iterable[str]) -> list[tuple[str, str]]:
    """Rows and columns of all cells of a table that were run."""
    run = {(name, column) for each in results.values() for name, row in each["rows"].items() for column in row["cells"]}
    return [(name, column) for name in ROWS for column in columns if (name, column) in run]


def _by_version(results: Mapping[str, Any], name: str, column: str) -> dict[str, Mapping[str, Any]]:
    """A cell on each version that it was run on."""
    cells = {minor(vllm): run["rows"].get(name, {}).get("cells", {}).get(column) for vllm, run in results.items()}
    return {vllm: cell for vllm, cell in cells.items() if cell}


def _trees(results: Mapping[str, Any]) -> list[str]:
    """On which targets trees were tested."""
    trees = {ROWS[name].title: _by_version(results, name, "tree").values() for name in ROWS}
    exact = [title for title, cells in trees.items() if {cell["verdict"] for cell in cells} == {EXACT}]
    where = "Targets need full attention in all layers, and the [settings](#settings) for trees below."
    tested = (
        f"`medusa` drafts trees with `tree`. They were tested on {', '.join(exact)} and the bundled target (Llama)."
    )
    return ["### Trees", "", f"{tested} {where}"]


def _table(results: Mapping[str, Any], titles: Mapping[str, str], notes: dict[str, int]) -> list[str]:
    lines = [f"| target | {' | '.join(titles.values())} |", "|---|" + "---|" * len(titles)]
    for name in dict.fromkeys(name for name, _ in _keys(results, titles)):
        cells = [_cell(_by_version(results, name, column), column, len(results), notes) for column in titles]
        lines.append(f"| {ROWS[name].title} | {' | '.join(cells)} |")
    return lines


def _cell(cells: Mapping[str, Mapping[str, Any]], column: str, num_versions: int, notes: dict[str, int]) -> str:
    """A cell's text; with versions, unless it is the same on all."""
    texts: dict[str, list[str]] = {}
    for its, cell in cells.items():
        texts.setdefault(_text(cell, column, notes), []).append(its)
    if [len(versions) for versions in texts.values()] == [num_versions]:
        return next(iter(texts))
    return "<br>".join(f"{', '.join(versions)}: {text}" for text, versions in texts.items())


def _text(cell: Mapping[str, Any], column: str, notes: dict[str, int]) -> str:
    if cell["verdict"] == EXACT:
        return EXACT if is_optimal(column) else f"exact ({cell['accepted']}, {cell['rejected']})"
    numbers = [notes.setdefault(_note(reason), len(notes) + 1) for reason in cell["reasons"]]
    return f"{cell['verdict']} ({', '.join(map(str, numbers))})"


def _note(reason: str) -> str:
    subject, _, text = reason.partition(": ")
    return f"`{subject}`: {text}" if text else reason


def _how(results: Mapping[str, Any]) -> list[str]:
    lines = _HOW.format(tokens=NUM_TOKENS, tie=TOLERANCE).splitlines()
    for vllm, run in results.items():
        dates = sorted({row["date"] for row in run["rows"].values()})
        line = _RUN.format(
            vllm=vllm,
            dates=" to ".join(dict.fromkeys((dates[0], dates[-1]))),
            seconds=sum(row["seconds"] for row in run["rows"].values()),
            cpu=run["machine"]["cpu"],
            cores="1 core" if run["machine"]["cores"] == 1 else f"{run['machine']['cores']} cores",
            versions=", ".join(f"{name} {its}" for name, its in run["versions"].items() if name != "vllm"),
        )
        lines.append(line + _ASSEMBLED * (vllm in ADDED))
    return lines


def _layouts() -> list[str]:
    lines = ["## Parallel layouts", "", "| flag | served | tested |", "|---|---|---|"]
    for flag, run in _RUN_LAYOUTS.items():
        served: dict[str, list[str]] = {}
        for rule in RULES:
            if rule.subject == flag:
                served.setdefault(rule.allowed, []).append(rule.scope.name)
        shown = "; ".join(f"{', '.join(what)}: {allowed}" for allowed, what in served.items())
        lines.append(f"| `{flag}` | {shown or 'any'} | {run} |")
    where = "All on one host; layouts over several hosts use vLLM's executors and are untested."
    rests = "vLLM's drafters [never rest](native.md#when-nobody-drafts) with data parallelism or pipeline stages."
    return [*lines, "", f"{where} [How ranks agree](design/vllm.md#parallel-layouts).", "", rests]


def _connectors() -> list[str]:
    named = ", ".join(f"`{name}`" for name in TESTED_CONNECTORS)
    served = ", ".join(f"`{method_of(kind)}`" for kind in BUNDLED if not kind.keeps_kv)
    unserved = "cascades before `method: vllm`, and own proposers on V2, are served with no connector"
    how = "a first run, and a second one whose prompts are loaded: tests/engine/test_connectors.py"
    return [
        "## KV connectors",
        "",
        "| `--kv-transfer-config` | served with | tested |",
        "|---|---|---|",
        f"| {named} | on V1, chains of {served}; `method: vllm` alone | {how} |",
        "| others | `method: vllm` alone | |",
        "",
        f"{unserved[0].upper()}{unserved[1:]}.",
        "vLLM's drafters with keys and values of their own [never rest](native.md#when-nobody-drafts) beside one.",
        "",
        "With NIXL and a drafter that is a model, servers for prefill and decode need the same drafter: vLLM checks it",
        "at the handshake ([49230](https://github.com/vllm-project/vllm/pull/49230)).",
    ]


def _requests() -> list[str]:
    return [
        "## Requests",
        "",
        "These requests are served without drafts, exactly, and counted in",
        "`vllm_spec_plugin:requests_without_drafts_total` by reason:",
        "",
        "| reason | requests | why |",
        "|---|---|---|",
        *(f"| `{reason}` | {_REQUESTS[reason][0]} | {_REQUESTS[reason][1]} |" for reason in WITHOUT_DRAFTS),
    ]


def _settings() -> list[str]:
    lines = [
        "## Settings",
        "",
        "Further checks at start-up; `vllm-spec check plugin.yaml --model M` reports them without starting a server.",
        "",
        "| key or flag | for | must be | since otherwise |",
        "|---|---|---|---|",
    ]
    for rule in RULES:
        # Kinds of layers are the table above.
        if rule.allowed != SERVED_LAYERS:
            lines.append(f"| `{rule.subject}` | {rule.scope.name} | {rule.allowed} | {rule.reason} |")
    return lines
