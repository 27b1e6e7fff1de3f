"""Which prompts, arms and sizes the page "On a real model" measures: `python -m benchmarks real-model`."""

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.instructions import instructions
from vllm_spec_plugin.schema.errors import UserError

PER_CATEGORY = 16  # as many as there are streams at most
_MAX_TOKENS = 128
_SPEC_BENCH = ("translation", "summarization", "qa", "math_reasoning", "rag")
_MT_BENCH = "mt_bench"
_NUM_GSM8K = 200
_SEED = 0
CONFIGS, HEAD = (Path(__file__).parent / kind / "smollm2" for kind in ("configs", "heads"))

# vLLM's draft lengths by batch size; of a head and of n-grams.
_TABLES = {"eagle3": [[1, 2, 3], [3, 8, 2], [9, 1024, 1]], "ngram": [[1, 2, 4], [3, 8, 2], [9, 1024, 0]]}

Row = dict[str, Any]


def _json(word: str, **settings: Any) -> str:
    return f"{word}:{json.dumps(settings, separators=(',', ':'))}"


def _by_table(**settings: Any) -> str:
    """Returns vLLM's drafter with fewer tokens in larger batches."""
    table = _TABLES[settings["method"]]
    lengths = {"num_speculative_tokens": table[0][-1], "num_speculative_tokens_per_batch_size": table}
    return _json("stock", **settings, **lengths)


_NGRAM = _by_table(method="ngram")
# Prompts come again in later rounds: nothing may know their answers.
_SUFFIX = _json("stock", method="suffix", num_speculative_tokens=16, suffix_decoding_max_cached_requests=0)
_EAGLE3 = {"method": "eagle3", "model": "head"}


@dataclass(frozen=True)
class Part:
    """Arms that are measured together with the same prompts.

    Attributes:
        prompts: name of the file, without its ending.
        needs: package that vLLM's arm needs; its arm is the last one, left out without it.
    """

    prompts: str
    arms: tuple[str, ...]
    needs: str = ""


PARTS = {
    "text": Part("prompts", ("suffix.yaml", _NGRAM, _SUFFIX), "arctic_inference"),
    # vLLM's best length is the best of 2, 4 and its table's. Few engines side by side fit into memory.
    "head": Part(
        "prompts",
        (
            _json("vllm", **_EAGLE3, num_speculative_tokens=5),
            _json("stock", **_EAGLE3, num_speculative_tokens=2),
            _by_table(**_EAGLE3),
        ),
    ),
    "cascade": Part("prompts", ("eagle3_cascade.yaml", _json("stock", **_EAGLE3, num_speculative_tokens=4))),
    "edits": Part("edits", ("prediction.yaml", "suffix.yaml", _NGRAM)),
    "schemas": Part("structured", ("grammar.yaml", "grammar_suffix.yaml", "suffix.yaml", _NGRAM)),
}
TEMPERATURES = (0.0, 0.7)
# Rounds, and output tokens per stream and round, by streams.
STREAMS = {1: (7, 192), 4: (5, 128), 16: (5, 64)}
TRAINING = {"--self-distill": "400k", "--draft-vocab": "8192", "--steps": "1000", "--batch-tokens": "1024"}
# Room for 16 of the longest prompts, beside a head: no request is preempted.
ENGINE = ("--max-model-len", "2048", "--kv-cache-memory-bytes", "1000000000", "--gpu-memory-utilization", "0.01",
          "--no-enable-prefix-caching")  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One run of `vllm-spec bench`."""

    part: str
    temperature: float
    streams: int

    @property
    def name(self) -> str:
        """Returns the name of its file of results, without the ending."""
        return f"{self.part}-{self.temperature:g}-{self.streams}"

    def command(self, model: str, *, rounds: int | None, has_needs: bool) -> list[str]:
        """Returns the words after `vllm-spec`; files are in the working folder.

        Args:
            rounds: None is all.
            has_needs: whether the package that `Part.needs` names is installed.
        """
        part, (all_rounds, tokens) = PARTS[self.part], STREAMS[self.streams]
        arms = part.arms if has_needs or not part.needs else part.arms[:-1]
        words = ["bench", "--model", model, "--prompts", f"{part.prompts}.jsonl", "--levels", str(self.streams)]
        words += ["--rounds", str(rounds or all_rounds), "--stream-tokens", str(tokens), "--min-total-tokens", "192"]
        words += ["--prompt-temperature", f"{self.temperature:g}", "--enforce-eager", "--noise-budget", "300"]
        words += [word for arm in arms for word in ("--arm", arm)]
        return [*words, "--runs", f"{self.name}.runs", "--json", f"{self.name}.new.json", "--", *ENGINE]


def cells() -> list[Cell]:
    """Returns all of them, those that say most first."""
    return [Cell(part, temperature, streams) for temperature in TEMPERATURES for part in PARTS for streams in STREAMS]


def read_rows(folder: Path) -> dict[str, list[Row]]:
    """Reads the data sets: rows for `vllm-spec bench --prompts` by category.

    Args:
        folder: has `spec_bench*.jsonl`, `human_eval*.jsonl` and `gsm8k*.jsonl`; gzipped ones end with `.gz`.

    Raises:
        UserError: one is missing.
    """
    found: dict[str, list[Row]] = {}
    for row in _lines(folder, "spec_bench"):
        category = row["category"] if row["category"] in _SPEC_BENCH else _MT_BENCH
        found.setdefault(category, []).append({"category": category, "turns": row["turns"]})
    found["human_eval"] = [{"category": "human_eval", "prompt": row["prompt"]} for row in _lines(folder, "human_eval")]
    gsm8k = [{"category": "gsm8k", "turns": [row["question"]]} for row in _lines(folder, "gsm8k")]
    return found | {"gsm8k": gsm8k[:_NUM_GSM8K]}


def _lines(folder: Path, name: str) -> Iterator[Row]:
    paths = sorted(folder.glob(f"{name}*.jsonl*"))
    if not paths:
        raise UserError(f"{folder}: there is no {name}*.jsonl; docs/real_model.md says where to get it")
    raw = paths[0].read_bytes()
    text = (gzip.decompress(raw) if paths[0].suffix == ".gz" else raw).decode()
    yield from map(json.loads, text.splitlines())


def split(rows: Sequence[Row], category: str) -> tuple[list[Row], list[Row]]:
    """Returns the rows to measure and those that a head may learn from, drawn by a seed."""
    drawn = list(rows)
    random.Random(f"{_SEED} {category}").shuffle(drawn)
    return drawn[:PER_CATEGORY], drawn[PER_CATEGORY:]


def chat_of(row: Row) -> Row:
    """Returns a row as `vllm-spec train-eagle3 --data` reads it: its first question, which the model answers."""
    if "prompt" in row:
        return {"prompt": row["prompt"], "completion": ""}
    return {"messages": [{"role": "user", "content": row["turns"][0]}]}


def write_prompts(folder: Path, work: Path) -> None:
    """Writes the prompts to measure with, and `train.jsonl`, which has none of them.

    Raises:
        UserError: see `read_rows`.
    """
    parts = {category: split(rows, category) for category, rows in read_rows(folder).items()}
    own = list(instructions("bench", PER_CATEGORY))
    measured = [row | {"max_tokens": _MAX_TOKENS} for rows, _ in parts.values() for row in rows]
    files = {
        "prompts": measured,
        "edits": [row | {"max_tokens": _MAX_TOKENS} for row in own if row["workload"] == "edit"],
        "structured": [row for row in own if row["workload"] == "structured"],
        "train": [chat_of(row) for _, others in parts.values() for row in others] + list(instructions("train", 400)),
    }
    work.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        (work / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def shortened(results: str, work: Path) -> str:
    """Returns results of `bench` with paths relative to `work` or the home, and of measurements the throughput only.

    Other figures are in its cells as medians.
    """
    found = json.loads(results.replace(f"{work.resolve()}/", "").replace(f"{Path.home()}/", "~/"))
    found["measurements"] = [row for row in found["measurements"] if row["metric"] == "tokens_per_second"]
    return json.dumps(found)
