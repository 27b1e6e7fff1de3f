"""A report in a terminal and as files."""

import html.parser
import importlib.util
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.report import (
    Chart,
    Files,
    Line,
    Measurements,
    Report,
    Table,
    check_files,
    output,
    write,
)
from vllm_spec_tools.report.provenance import provenance

# Markup of rich, Markdown and HTML, an emoji's code, and mathematics of matplotlib.
EVIL = "fixed:a [red]<b>|*$x$"


def report(arm: str = EVIL, **fields: object) -> Report:
    measured = Measurements()
    measured.add(arm, "easy", 1, 0, {"speed": 2.0})
    models = {"target": "/some/folder/wide", "draft": "small"}
    values: dict[str, object] = {
        "conclusion": [f"{arm} is best"],
        "tables": [Table("Speed, tokens/s", ["arm", "1 stream"], [[arm, "2.0"]], "a note")],
        "charts": [Chart("throughput", "streams", "tokens/s", [Line(arm, {1: 2.0})])],
        "notes": ["how it was measured"],
        "measurements": measured,
        "data": {"arms": [arm]},
    }
    origin = provenance(["bench", "--arm", arm], 3, (), models) | {"rounds": 2}
    return Report("bench", "What was measured", origin, **(values | fields))  # type: ignore[arg-type]


def shown(found: Report) -> str:
    console = Console(file=io.StringIO(), width=120)
    write(found, terminal=console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def in_order(text: str, *parts: str) -> bool:
    places = [text.index(part) for part in parts]
    return places == sorted(places)


def test_the_terminal_has_the_conclusion_first_and_texts_as_they_are() -> None:
    text = shown(report(problems=["interrupted"]))
    assert in_order(text, "What was measured", "interrupted", "is best", "Speed,", "a note", "how it")
    assert text.count(EVIL) == 2
    assert "target: wide, draft: small;" in text


def test_json_has_schema_provenance_and_every_value(tmp_path: Path) -> None:
    write(report(), json=tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text())
    assert (found["schema"], found["report"], found["arms"]) == (output.SCHEMA, "bench", [EVIL])
    origin = found["provenance"]
    assert origin["arguments"] == ["bench", "--arm", EVIL]
    assert origin["versions"].keys() >= {"vllm_spec_plugin", "vllm", "torch", "python"}
    assert origin["machine"].keys() >= {"cpu", "cores"}
    row = {"arm": EVIL, "workload": "easy", "level": 1, "round": 0, "metric": "speed", "value": 2.0}
    assert found["measurements"] == [row]
    assert found["medians"][0]["median"] == 2.0


def test_markdown_has_conclusion_picture_tables_and_command(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    write(report(), markdown=tmp_path / "docs/a.md", png=tmp_path / "docs/a.png")
    text = (tmp_path / "docs/a.md").read_text()
    parts = ("# What was measured", "is best", "](a.png)", "| arm | 1 stream |", "a note", "vllm-spec bench --arm '")
    assert in_order(text, *parts)
    assert (tmp_path / "docs/a.png").read_bytes().startswith(b"\x89PNG")
    assert "| fixed:a [red]&lt;b>\\|\\*$x$ | 2.0 |" in text
    assert "seed 3, rounds: 2, " in text
    assert EVIL not in text.split("```")[0]


def test_html_is_one_file_that_loads_nothing_and_escapes_all_texts(tmp_path: Path) -> None:
    arm = "<script>alert(1)</script>![a](https://example.com/a.png)"
    write(report(arm), html=tmp_path / "a.html")
    tags: list[tuple[str, dict[str, str | None]]] = []
    texts: list[str] = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append((tag, dict(attrs)))  # type: ignore[method-assign]
    parser.handle_data = lambda data: texts.append(data)  # type: ignore[method-assign]
    parser.feed((tmp_path / "a.html").read_text())
    names = [tag for tag, _ in tags]
    assert {"h1", "table", "img", "pre"} <= set(names)
    assert not {"script", "link", "iframe", "object"} & set(names)
    (source,) = (found["src"] for tag, found in tags if tag == "img")
    assert source is not None
    assert source.startswith("data:image/png;base64,")
    assert "<script>alert(1)</script>" in "".join(texts)
    assert [found.get("style") for tag, found in tags if tag == "td"] == [None, "text-align:right"]


def test_files_are_checked_before_anything_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        check_files(Files(html=tmp_path / "nothing/a.html"))
    with pytest.raises(UserError, match=r"--csv .*: is a folder"):
        check_files(Files(csv=tmp_path))
    check_files(Files(png=tmp_path / "a.png"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--png needs matplotlib: pip install 'vllm-spec-tools\[plot\]'"):
        check_files(Files(png=tmp_path / "a.png"))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_table_that_is_too_wide_is_folded_in_a_terminal_and_never_cut(is_terminal: bool) -> None:
    arms = [f"vLLM's draft_model, K = {number}" for number in range(9)]
    table = Table("parts", ["part", *arms], [["bookkeeping and messages", *(["123.45"] * 9)]])
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=is_terminal, color_system=None)
    write(report(tables=[table]), terminal=console)
    text = file.getvalue()
    assert "…" not in text
    assert (max(map(len, text.splitlines())) <= 80) == is_terminal
    assert is_terminal or ("bookkeeping and messages" in text and text.count("123.45") == 9)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_heads_and_words_are_whole_at_any_width_and_every_part_names_its_rows(width: int) -> None:
    header = ["proposer", "streams", "step, ms", "drafting", "measured", "one-of-the-longest-words", "all", "error"]
    cells = ["draft_model", "8", "12.15", "2.10", "1.90 (1.26-3.68)", "[b]", "1.93x", "+42%"]
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None, emoji=False)
    write(report(tables=[Table("Prediction", header, [cells] * 2)]), terminal=console)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    shown = " ".join(lines).split()
    words = {word for text in (*header, *cells) for word in text.split()}
    assert words <= set(shown)
    # The columns of words stand in each part, beside some of the figures.
    parts = sum(text.startswith("Prediction") for text in lines)
    assert (shown.count("proposer"), shown.count("draft_model")) == (parts, 2 * parts)
    assert {40: parts > 1, 80: parts == 2, 200: parts == 1}[width]
