"""Writes the figures of the docs from committed results of `vllm-spec`: `python -m benchmarks.figures`.

A page has markers, and what stands between them is generated:

    <!-- figures: ratio one.json two.json workload=easy arms=optimal|cascade -->
    <!-- /figures -->

The first word is one of `SHOW`; results are in docs/benchmarks. Results of several files share a table if each has
arms of its own. A test compares pages and pictures with the results.
"""

import hashlib
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.category_figures import by_category, by_cell, latencies, lengths, means, measured, origins
from benchmarks.token_picture import token_picture
from vllm_spec_tools.report import Chart, Line, Ratio, plural, show_percentiles, show_spread
from vllm_spec_tools.report.chart import picture
from vllm_spec_tools.report.provenance import command_line, machine_text, models_text
from vllm_spec_tools.report.table import markdown_table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/benchmarks"
PAGES = (
    ROOT / "README.md",
    *(
        ROOT / f"docs/{page}.md"
        for page in ("benchmarks", "real_model", "certify", "design/verification", "grammar", "native")
    ),
)
_P_VALUES = ("p_value", "p_two_samples")
_SPEED, _PLUGIN = "tokens_per_second", "the plugin's lengths"
# The schema of results whose arms and options have the names of now.
_NEW_NAMES = 5
_SCHEDULERS = {"none": "no speculation", "vllm": "vLLM's speculation"}
HASH_KEY = "Results"
"""Matches the text in a picture that has the hash of its results."""

_MARKED = re.compile(r"(<!-- figures: (.*?) -->\n).*?(<!-- /figures -->)", re.DOTALL)

Cell = Mapping[str, Any]


class Figures:
    """Results of one or more runs, and which of them a marker shows."""

    def __init__(self, names: Sequence[str], workload: str = "", arms: str = "", level: str = "") -> None:
        """Reads results.

        Args:
            names: files in `RESULTS`.
            workload: of the cells to show, separated by "|"; empty is all.
            level: number of streams of the cells to show; empty is all.
            arms: names of the arms to show, separated by "|"; empty is all.
        """
        self.names, self.runs = names, [_renamed(json.loads((RESULTS / name).read_text())) for name in names]
        known = list(dict.fromkeys(arm for run in self.runs for arm in run.get("arms", ())))
        self.reference = known[0] if known else ""
        chosen = arms.split("|") if arms else known
        if unknown := set(chosen) - set(known):
            raise ValueError(f"{', '.join(names)}: no arm {', '.join(unknown)}; allowed: {', '.join(known)}")
        cells: list[Cell] = [
            cell
            for run in self.runs
            for cell in run.get("cells", ())
            if cell["workload"] in (workload.split("|") if workload else [cell["workload"]])
            and level in ("", str(cell["streams"]))
        ]
        self.arms = [arm for arm in chosen if arm != self.reference]
        self.stock = [arm for arm in known if arm.startswith("vLLM's ") and _PLUGIN not in arm]
        # Of several runs, the first one's reference.
        self.cells = {(cell["arm"], cell["workload"], cell["streams"]): cell for cell in reversed(cells)}
        self.workloads = list(dict.fromkeys(cell["workload"] for cell in cells))
        self.levels = sorted({cell["streams"] for cell in cells})
        self.values = measured(reversed(self.runs))

    def ratio(self, arm: str, other: str, workload: str, level: int) -> Ratio | None:
        """Returns an arm's throughput over another's, round by round."""
        return self.values.ratio(arm, other, workload, level, _SPEED)

    def best_stock(self, workload: str, level: int) -> str:
        """Returns the arm of vLLM's own speculation with the highest median throughput."""
        found: str = max(self.stock, key=lambda arm: self.values.median(arm, workload, level, _SPEED) or 0.0)
        return found

    @property
    def rounds(self) -> str:
        """Number of rounds, in words."""
        counts = sorted({cell["rounds"] for cell in self.cells.values()})
        return " or ".join(map(str, counts)) + (" round, noise unknown" if counts == [1] else " rounds")

    def table(self, show: Callable[[Cell], str], head: str, arms: Sequence[str] | None = None) -> str:
        """Returns a table with a row per arm and a column per workload and number of streams."""
        columns = [(workload, level) for workload in self.workloads for level in self.levels]
        names = [self._column(*column) for column in columns]
        shown = (self.reference, *self.arms) if arms is None else arms
        rows = [[arm, *(show(self.cells[arm, *column]) for column in columns)] for arm in shown]
        return markdown_table([[head, *names], *rows])

    def _column(self, workload: str, level: int) -> str:
        parts = [workload] * (len(self.workloads) > 1) + [plural(level, "stream")] * (len(self.levels) > 1)
        return ", ".join(parts) or plural(level, "stream")


def _renamed(run: dict[str, Any]) -> dict[str, Any]:
    """Returns results with the names that arms have now; results of before schema 5 have others."""
    if run.get("schema", 0) >= _NEW_NAMES:
        return run
    text = json.dumps(run)
    text = re.sub(r"(vLLM's \w+, K = \d+), by batch size = [\[\]\d, ]+\]", r"\1, less in larger batches", text)
    text = re.sub(r"(\w+) of vLLM.s, optimal, K = (\d+)", rf"vLLM's \1, {_PLUGIN} up to \2", text)
    found: dict[str, Any] = json.loads(text)
    return found


def _shown(found: Ratio | None, cell: Cell) -> str:
    """Returns a ratio with its range, and says where it is within noise and where nothing was drafted."""
    assert found is not None
    parts = [show_spread(found)]
    if found.differs is False:
        parts.append("within noise")
    if not cell["draft_tokens"]:
        parts.append("no drafts")
    return ", ".join(parts)


def ratio(figures: Figures) -> str:
    """Returns the throughput over no speculation; the reference's row has tokens per second."""

    def show(cell: Cell) -> str:
        if cell["arm"] == figures.reference:
            return f"{cell['tokens_per_second']['median']:.0f} tokens/s"
        return _shown(figures.ratio(cell["arm"], figures.reference, cell["workload"], cell["streams"]), cell)

    return figures.table(show, f"tokens/s over no speculation, {figures.rounds}")


def over_vllm(figures: Figures) -> str:
    """Returns the throughput over that of vLLM's own speculation, its fastest arm in each column."""

    def show(cell: Cell) -> str:
        best = figures.best_stock(cell["workload"], cell["streams"])
        return _shown(figures.ratio(cell["arm"], best, cell["workload"], cell["streams"]), cell)

    arms = [arm for arm in figures.arms if arm not in figures.stock]
    return figures.table(show, f"tokens/s over vLLM's fastest arm, {figures.rounds}", arms)


def ttft(figures: Figures) -> str:
    """Returns percentiles of the time to first token."""
    return figures.table(
        lambda cell: show_percentiles(list(cell["ttft"].values())), "time to first token, ms (p50/p95/p99)"
    )


def greedy(figures: Figures) -> str:
    """Returns in words whether greedy outputs agree with those without speculation."""
    found = [cell["greedy"] for cell in figures.cells.values() if cell["greedy"]]
    outputs, tied, wrong = (sum(one[key] for one in found) for key in ("outputs", "rounding", "wrong"))
    if wrong:
        return f"**{wrong} of {outputs} greedy outputs differ from those without speculation.**"
    return f"All {outputs:,} greedy outputs equal those without speculation" + (f" ({tied} tied)." if tied else ".")


def host(figures: Figures) -> str:
    """Returns what `method: vllm` adds to a step of vLLM's schedulers, from the results of `benchmarks.native_host`."""
    steps = figures.runs[0]["steps"]
    rows = [["microseconds per step", "scheduling", *(plural(int(n), "request") for n in next(iter(steps.values())))]]
    for kind, by_requests in steps.items():
        for added in next(iter(by_requests.values())):
            if " - " in added:
                arm, _, other = added.partition(" - ")
                cells = [f"{found[added]:+.0f} ({found[other]:.0f})" for found in by_requests.values()]
                rows.append([f"{arm} over {_SCHEDULERS[other]}", kind, *cells])
    return markdown_table(rows)


def certificates(figures: Figures) -> str:
    """Returns a row per result of `vllm-spec certify`."""
    head = "configuration, verdict, checks, draft tokens verified (accepted), outputs per setting, finds, "
    rows = [f"{head}smallest p (threshold), minutes, commit".split(", ")]
    for run in figures.runs:
        origin, checks = run["provenance"], [check for check in run["checks"] if check["engine"] != "no speculation"]
        arguments, commit = origin["arguments"], origin["commit"]
        tested = [check for check in checks if check["outcome"] != "not tested"]
        drafted, accepted = (sum(check[key] for check in checks) for key in ("drafted", "accepted"))
        smallest = min(check[key] for check in checks for key in _P_VALUES if check[key] is not None)
        # Of the engine that is sampled most: with random lengths, if there is one.
        sampled = [check for check in tested if check["p_value"] is not None]
        sampled = [check for check in sampled if check["engine"] == sampled[0]["engine"]]
        outputs = sorted({check["outputs"] for check in sampled})
        finds = sorted(check["smallest_fault"] or math.inf for check in sampled)
        rows.append(
            [
                Path(arguments[arguments.index("--config") + 1]).name,
                run["verdict"],
                f"{len(tested)} of {len(checks)}",
                f"{drafted:,} ({accepted:,})",
                " to ".join(f"{count:,}" for count in dict.fromkeys((outputs[0], outputs[-1]))),
                " to ".join(f"{share:.3g}%" for share in dict.fromkeys((100 * finds[0], 100 * finds[-1]))),
                f"{smallest:.2g} ({run['p_threshold']:.1g})",
                f"{run['seconds'] / 60:.0f}",
                commit[:9] + "+" * commit.endswith("+"),
            ]
        )
    return markdown_table(rows)


def coupling(figures: Figures) -> str:
    """Returns accepted draft tokens by temperature, from the results of `benchmarks coupling`."""
    found = {(one["workload"], one["arm"], one["metric"]): one["median"] for one in figures.runs[0]["medians"]}
    kinds = dict.fromkeys(kind for _, kind, _ in found)
    rows = [["accepted of 4 draft tokens", *kinds]]
    for place in dict.fromkeys(place for place, _, _ in found):
        means = [f"{found[place, kind, 'accepted']:.2f} ± {found[place, kind, 'error']:.2f}" for kind in kinds]
        rows.append([place, *means])
    return markdown_table(rows)


def source(figures: Figures) -> str:
    """Returns date, commit, machine, models and command."""
    parts = []
    for run in figures.runs:
        origin = run["provenance"]
        where = (
            f"{machine_text(origin)} Commit {(origin['commit'] or 'unknown')[:9]}."
            + f" {models_text(origin)}." * bool(origin["models"])
        )
        command = re.sub(r" --(json|png|markdown|html) \S+", "", command_line(origin))
        if "schema" in run and run["schema"] < _NEW_NAMES:
            command = command.replace(" --target ", " --model ").replace(" --tokens ", " --stream-tokens ")
        parts.append(f"```\n{command}\n```\n\n{where}")
    return "\n\n".join(parts)


def draw(figures: Figures) -> bytes:
    """Returns a PNG with throughput over no speculation, by streams.

    Of categories of prompts it has their mean per temperature, else also the time per output token.
    """
    origin, own = figures.runs[0]["provenance"], {HASH_KEY: hash_of(figures.names)}
    title = f"{models_text(origin)}; {machine_text(origin, short=True)}, {origin['date'][:10]}"
    if len(figures.workloads) > 1:
        return picture(means(figures.runs), "Mean over categories of prompts", title, own)
    speed, time = [], []
    for arm in (figures.reference, *figures.arms):
        role: Any = {figures.reference: "reference", "optimal": "main"}.get(arm, "other")
        cells = {level: figures.cells[arm, figures.workloads[0], level] for level in figures.levels}
        spreads = {
            level: figures.ratio(arm, figures.reference, figures.workloads[0], level) for level in figures.levels
        }
        speed.append(Line(arm, spreads, role))
        time.append(Line(arm, {level: 1e3 * cell["tpot"]["p50"] for level, cell in cells.items()}, role))
    charts = [
        Chart("throughput", "concurrent streams", f"tokens/s over {figures.reference}", speed),
        Chart("time per output token", "concurrent streams", "TPOT, ms", time),
    ]
    return picture(charts, "Speculative decoding under load", title, own)


def tokens(figures: Figures) -> str:
    """Returns the picture of a text's tokens, from the results of `benchmarks.grammar`, and what it shows in words."""
    run = figures.runs[0]
    kinds = [token["kind"] for token in run["tokens"]]
    count, own = len(kinds), kinds.count("own")
    said = f"With drafts of up to {run['longest_draft']} tokens, {count - own} of {count} tokens are accepted drafts: "
    # The last step has no token of the model's own if a draft token ends the output.
    said += f"{own + (kinds[-1] != 'own')} steps instead of {count}."
    return f"![Tokens of a JSON output by kind](benchmarks/{svg_of(figures).name})\n\n{said}"


def svg_of(figures: Figures) -> Path:
    """Returns the path of the picture of a text's tokens."""
    return RESULTS / (Path(figures.names[0]).stem + ".svg")


def picture_of(figures: Figures) -> Path:
    """Returns the path of the picture of some results."""
    first = Path(figures.names[0])
    return RESULTS / (f"{first.parent}.png" if first.parent.name else f"{first.stem}.png")


def hash_of(names: Sequence[str]) -> str:
    """Returns a hash of the contents of results."""
    return hashlib.sha256(b"".join((RESULTS / name).read_bytes() for name in names)).hexdigest()


SHOW: Mapping[str, Callable[[Figures], str]] = {
    "ratio": ratio,
    "over_vllm": over_vllm,
    "ttft": ttft,
    "by_category": lambda figures: by_category(figures.runs),
    "by_cell": lambda figures: by_cell(figures.runs),
    "lengths": lambda figures: lengths(figures.runs),
    "latencies": lambda figures: latencies(figures.runs),
    "origins": lambda figures: origins(figures.names, figures.runs),
    "greedy": greedy,
    "host": host,
    "coupling": coupling,
    "certificates": certificates,
    "tokens": tokens,
    "source": source,
}


def parse(marker: str) -> tuple[str, Figures]:
    """Returns what a marker shows and its results."""
    kind, *words = shlex.split(marker)
    options = dict(word.split("=", 1) for word in words if "=" in word)
    found = [sorted(RESULTS.glob(word)) if "*" in word else [RESULTS / word] for word in words if "=" not in word]
    return kind, Figures([str(path.relative_to(RESULTS)) for paths in found for path in paths], **options)


def markers(page: Path) -> list[str]:
    """Returns the markers of a page."""
    return [marker for _, marker, _ in _MARKED.findall(page.read_text())]


def rendered(page: Path) -> str:
    """Returns a page with its figures."""

    def replace(found: re.Match[str]) -> str:
        kind, figures = parse(found[2])
        if kind == "picture":
            address = os.path.relpath(picture_of(figures), page.parent)
            what = ", mean over categories of prompts" if len(figures.workloads) > 1 else ", and time per output token"
            shown = f"![Throughput over no speculation{what}]({address})"
        else:
            shown = SHOW[kind](figures)
        return f"{found[1]}\n{shown}\n\n{found[3]}"

    return _MARKED.sub(replace, page.read_text())


def write() -> None:
    """Writes the figures of all pages, and the pictures."""
    for page in PAGES:
        for marker in markers(page):
            kind, figures = parse(marker)
            if kind == "picture":
                picture_of(figures).write_bytes(draw(figures))
            if kind == "tokens":
                svg_of(figures).write_text(token_picture(figures.runs[0]["tokens"]))
        page.write_text(rendered(page))


if __name__ == "__main__":
    write()
