"""A real model's cells, their prompts, and the tables of their results."""

import gzip
import json
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import real_model
from benchmarks.__main__ import app
from benchmarks.category_figures import by_category, by_cell, latencies, lengths, means, origins
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.arms import base_of, plan_arms
from vllm_spec_tools.prompts import read_prompts

KINDS = ("writing", "coding", "translation", "summarization", "qa", "math_reasoning", "rag")
CATEGORIES = ["mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag", "human_eval", "gsm8k"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Data sets of 20 rows per category, of which 16 are measured; one is gzipped."""
    (tmp_path / "sets").mkdir()
    files: dict[str, list[Any]] = {
        "spec_bench": [{"category": kind, "turns": [f"{kind} {i}?", "More?"]} for kind in KINDS for i in range(20)],
        "human_eval": [{"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():"} for i in range(20)],
        "gsm8k_200": [{"question": f"How many, {i}?", "answer": "4"} for i in range(20)],
    }
    for name, rows in files.items():
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path = tmp_path / "sets" / f"{name}.jsonl"
        path.write_bytes(text)
        if name == "human_eval":
            path.with_name("human_eval.jsonl.gz").write_bytes(gzip.compress(text))
            path.unlink()
    return tmp_path / "sets"


def test_nothing_that_is_measured_is_trained_on(folder: Path, tmp_path: Path) -> None:
    real_model.write_prompts(folder, tmp_path / "work")
    measured = read_prompts([tmp_path / "work/prompts.jsonl"])
    assert list(dict.fromkeys(prompt.workload for prompt in measured)) == CATEGORIES
    assert len(measured) == len(CATEGORIES) * real_model.PER_CATEGORY
    assert {prompt.max_tokens for prompt in measured} == {128}
    assert {len(prompt.turns) for prompt in measured if prompt.workload == "mt_bench"} == {1}
    asked = {prompt.prompt or (prompt.messages or [])[0].content for prompt in measured}
    for name, key in (("edits", "prediction"), ("structured", "output_schema")):
        own = read_prompts([tmp_path / f"work/{name}.jsonl"])
        assert len(own) == real_model.PER_CATEGORY
        assert all(getattr(one, key) for one in own)
        asked |= {(one.messages or [])[0].content for one in own}
    lines = [json.loads(line) for line in (tmp_path / "work/train.jsonl").read_text().splitlines()]
    trained = {line.get("prompt") or line["messages"][0]["content"] for line in lines}
    # Of mt_bench there are 40, of the seven others 20.
    assert len(trained) == 40 - 16 + 7 * 4 + 400
    assert not trained & asked


def test_a_data_set_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "gsm8k_200.jsonl").unlink()
    with pytest.raises(UserError, match=r"there is no gsm8k\*\.jsonl; docs/real_model\.md says where to get it"):
        real_model.write_prompts(folder, tmp_path / "work")


def test_every_arm_of_every_cell_is_one_of_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for config in real_model.CONFIGS.glob("*.yaml"):
        shutil.copy(config, tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plans").mkdir()
    used = set()
    for name, part in real_model.PARTS.items():
        words = part.arms if not part.needs or find_spec(part.needs) else part.arms[:-1]
        assert len(plan_arms(words, base_of(None, None), tmp_path / "plans")) == 1 + len(words)
        used |= {arm for arm in part.arms if arm.endswith(".yaml")}
        assert any("eagle3" in arm for arm in part.arms) == (name in ("head", "cascade"))
    assert used == {path.name for path in tmp_path.glob("*.yaml")}
    for table in real_model._TABLES.values():
        assert [last + 1 for _, last, _ in table[:-1]] == [first for first, _, _ in table[1:]]
        assert [tokens for *_, tokens in table] == sorted((tokens for *_, tokens in table), reverse=True)
    assert load_config(tmp_path / "suffix.yaml").draft_length.tokens == 16


def test_results_are_kept_and_a_cell_that_has_some_is_not_measured_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    class Done:
        returncode = 0

    def run(words: list[Any], *, cwd: Path, check: bool) -> Done:
        asked.append([str(word) for word in words])
        if "bench" in words:
            new = cwd / words[words.index("--json") + 1]
            rows = [{"metric": metric, "value": 1.0} for metric in ("tokens_per_second", "ttft_p50")]
            new.write_text(
                json.dumps({"measurements": rows, "models": [str(cwd.resolve() / "head"), str(Path.home() / "a")]})
            )
        return Done()

    monkeypatch.setattr("subprocess.run", run)
    work = tmp_path / "work"
    words = ["real-model", str(folder), "text-0-1", "head-0.7-4", "head-0-4", "--work", str(work), "--rounds", "1"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert [line[1] for line in asked] == ["bench", "bench", "bench"]
    assert (work / "head/config.json").read_text() == (real_model.HEAD / "config.json").read_text()
    assert asked[1][asked[1].index("--prompt-temperature") + 1] == "0.7"
    assert asked[1][asked[1].index("--levels") + 1] == "4"
    assert {line[line.index("--rounds") + 1] for line in asked} == {"1"}
    assert json.loads((work / "text-0-1.json").read_text()) == {
        "measurements": [{"metric": "tokens_per_second", "value": 1.0}],
        "models": ["head", "~/a"],
    }
    assert not list(work.glob("*.new*"))
    (work / "head-0-4.json").unlink()
    assert CliRunner().invoke(app, words[:-2]).exit_code == 0
    assert len(asked) == 4
    assert asked[3][asked[3].index("--rounds") + 1] == "5"
    assert CliRunner().invoke(app, [*words, "--train"]).exit_code == 0
    assert asked[4][1:4] == ["train-eagle3", "--model", "smollm2"]


def test_an_unknown_cell_is_refused(folder: Path) -> None:
    result = CliRunner().invoke(app, ["real-model", str(folder), "text-9"])
    assert result.exit_code == 2
    assert "CELL: got text-9; allowed: text-0-1, text-0-4" in result.output


def run_of(speeds: Mapping[str, tuple[tuple[float, ...], ...]], streams: int = 1) -> dict[str, Any]:
    """Results of arms in two categories, three rounds each."""
    categories = ("qa", "rag")
    cells, rows = [], []
    for arm, by_category_ in speeds.items():
        for category, values in zip(categories, by_category_, strict=True):
            is_reference = arm == "no speculation"
            cells.append(
                {
                    "arm": arm,
                    "workload": category,
                    "streams": streams,
                    "rounds": len(values),
                    "tokens_per_second": {"median": sorted(values)[1]},
                    "acceptance_length": None if is_reference else 2.5,
                    "draft_length": 0.0 if is_reference else 1.25,
                    "ttft": {"p50": 0.1, "p95": None if category == "qa" else 0.3, "p99": 9.0},
                    "tpot": {"p50": 1 / values[0], "p95": 0.05, "p99": 9.0},
                }
            )
            rows += [
                {"arm": arm, "workload": category, "level": streams, "round": number, "metric": "tokens_per_second"}
                | {"value": value}
                for number, value in enumerate(values)
            ]
    return {"arms": list(speeds), "cells": cells, "measurements": rows}


RUNS = [
    run_of({"no speculation": ((10, 10, 10), (20, 20, 20)), "a": ((20, 21, 19), (20, 22, 18))}),
    # Its own reference is twice as fast.
    run_of({"no speculation": ((20, 20, 20), (40, 40, 40)), "b": ((30, 30, 30), (60, 60, 60))}),
]


def test_ratios_are_over_the_same_runs_reference_and_the_fastest_is_bold() -> None:
    assert by_category(RUNS).splitlines() == [
        "| over no speculation, 3 rounds | mean | qa | rag |",
        "|---|---|---|---|",
        "| no speculation, tokens/s |  | 10 | 20 |",
        "| a | 1.41 (1.31-1.52) | **2.00** (1.90-2.10) | 1.00 (0.90-1.10) ~ |",
        "| b | **1.50** | 1.50 | **1.50** |",
    ]


def test_means_by_temperature_and_streams() -> None:
    speeds = {"no speculation": ((10, 10, 10), (20, 20, 20)), "a": ((20, 21, 19), (20, 22, 18))}
    others = {"no speculation": ((10, 10, 10), (20, 20, 20)), "b": ((15, 15, 15), (30, 30, 30))}
    cells = [("0.7", 1, speeds), ("0", 16, speeds), ("0", 4, speeds), ("0", 4, others)]
    runs = [
        run_of(each, streams) | {"provenance": {"arguments": ["bench", "--prompt-temperature", temperature]}}
        for temperature, streams, each in cells
    ]
    assert by_cell(runs).splitlines() == [
        "| temperature, streams | 0, 4 | 0, 16 | 0.7, 1 |",
        "|---|---|---|---|",
        "| a | 1.41 (1.31-1.52) | **1.41** (1.31-1.52) | **1.41** (1.31-1.52) |",
        "| b | **1.50** | - | - |",
    ]


def test_one_category_has_no_mean() -> None:
    run = run_of({"no speculation": ((10, 10, 10), (20, 20, 20)), "a": ((20, 21, 19), (20, 22, 18))})
    run["cells"] = [cell for cell in run["cells"] if cell["workload"] == "rag"]
    assert by_category([run]).splitlines()[::2] == [
        "| over no speculation, 3 rounds | rag |",
        "| no speculation, tokens/s | 20 |",
    ]


def test_lengths_and_latencies() -> None:
    assert lengths(RUNS).splitlines()[2:] == ["| a | 2.50 (1.25) | 2.50 (1.25) |", "| b | 2.50 (1.25) | 2.50 (1.25) |"]
    four = run_of({"no speculation": ((10, 10, 10), (20, 20, 20))}, streams=4)
    assert latencies([*RUNS, four]).splitlines() == [
        "| p50/p95, ms | TTFT, 1 | TTFT, 4 | TPOT, 1 | TPOT, 4 |",
        "|---|---|---|---|---|",
        "| no speculation | 100/300 | 100/300 | 75.0/50.0 | 75.0/50.0 |",
        "| a | 100/300 | -/- | 50.0/50.0 | -/- |",
        "| b | 100/300 | -/- | 25.0/50.0 | -/- |",
    ]


def test_the_chart_has_the_mean_by_temperature_and_streams() -> None:
    runs = []
    for temperature, streams in (("0", 4), ("0.7", 1), ("0", 1)):
        speeds = {"no speculation": ((10, 10, 10), (20, 20, 20)), "a": ((10, 20, 20), (40 * streams,) * 3)}
        arguments = ["bench", "--prompt-temperature", temperature]
        runs.append(run_of(speeds, streams) | {"provenance": {"arguments": arguments}})
    cold, warm = means(runs)
    assert (cold.title, warm.title) == ("temperature 0", "temperature 0.7")
    assert [line.name for line in cold.lines] == ["no speculation", "a"]
    found = {level: ratio.median for level, ratio in cold.lines[1].points.items()}  # type: ignore[union-attr]
    assert found == {1: pytest.approx(2.0), 4: pytest.approx(4.0)}
    assert list(cold.lines[1].points) == [1, 4]
    assert list(warm.lines[1].points) == [1]


def test_where_a_cell_was_measured_and_what_disturbed_it() -> None:
    run = run_of({"no speculation": ((10, 10, 10), (20, 20, 20)), "a": ((20, 21, 19), (20, 22, 18))})
    for number, cell in enumerate(run["cells"]):
        cell["disturbed_rounds"] = number
    origin = {
        "machine": {"cores": 1, "cpu": "some CPU"},
        "date": "2026-11-29T10:00:00",
        "commit": "0123456789ab",
        "versions": {},
    }
    row = "| text-0-1 | 1 core of some CPU | 2026-11-29 | 012345678 | 12 | 6 |"
    name, runs = "real_model/text-0-1.json", [run | {"provenance": origin}]
    assert origins([name], runs).splitlines()[2:] == [f"{row} - |"]
    for cell in run["cells"]:
        cell["preemptions"] = 2.0
    assert origins([name], runs).splitlines()[2:] == [f"{row} 8 |"]
