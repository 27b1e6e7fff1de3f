"""`vllm-spec check` and the shape of the command line."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from vllm_spec_plugin.cli import app
from vllm_spec_plugin.demo import model_path

CONFIGS = Path(__file__).parents[3] / "configs"
GOOD = "proposer: {method: ngram, max_order: 3}\n"


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def write(folder: Path, text: str, name: str = "plugin.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_good_file_prints_every_setting_and_where_it_is_from(tmp_path: Path) -> None:
    result = run("check", write(tmp_path, GOOD))
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "plugin.yaml: OK" in result.stdout
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.startswith("  ")}
    assert rows == {
        "proposer.method": ["ngram", "given"],
        "proposer.mode": ["lookup", "default"],
        "proposer.min_order": ["2", "default"],
        "proposer.max_order": ["3", "given"],
        "proposer.window": ["not", "used", "default"],
        "proposer.draft_sampling": ["greedy", "default"],
        "proposer.shared": ["false", "default"],
        "proposer.shared_tokens": ["not", "used", "default"],
        "proposer.shared_scope": ["not", "used", "default"],
        "draft_length.policy": ["fixed", "default"],
        "draft_length.tokens": ["4", "default"],
        "verification.lenience": ["1.0", "(exact)", "default"],
        "stream_granularity": ["free", "default"],
        "stream_tokens": ["not", "used", "default"],
    }


def test_lenience_below_one_is_called_lossy(tmp_path: Path) -> None:
    out = run("check", write(tmp_path, GOOD + "verification: {lenience: 0.9}")).stdout
    assert "LOSSY" in out
    assert "exact" not in out


def test_shipped_files_pass() -> None:
    result = run("check", *sorted(CONFIGS.glob("*.yaml")))
    assert result.exit_code == 0
    assert result.stdout.count(": OK") == 7


def test_every_file_is_checked_and_one_bad_one_fails_all(tmp_path: Path) -> None:
    bad = write(tmp_path, "proposer: {method: ngarm}", "bad.yaml")
    good = write(tmp_path, GOOD)
    result = run("check", tmp_path / "none.yaml", bad, good)
    assert result.exit_code == 1
    assert "plugin.yaml: OK" in result.stdout
    assert result.stderr.splitlines() == [
        f"{tmp_path}/none.yaml: no such file; allowed: a YAML file that can be read",
        f"{bad}: proposer.method: got the text 'ngarm'; allowed: cascade, draft_model, medusa, ngram; "
        "did you mean ngram?",
    ]


class FakeConfig(SimpleNamespace):
    def get_text_config(self) -> Any:
        return getattr(self, "text_config", self)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `AutoConfig` knows, by name; importing the real one takes seconds."""
    models: dict[str, Any] = {}

    def from_pretrained(name: str, **_: object) -> Any:
        if name not in models:
            raise OSError(f"{name} is unknown.\nSee https://example.org")
        return models[name]

    module: Any = ModuleType("transformers")
    module.AutoConfig = SimpleNamespace(from_pretrained=from_pretrained)
    monkeypatch.setitem(sys.modules, "transformers", module)
    return models


def test_model_facts_are_printed(tmp_path: Path, hub: dict[str, Any]) -> None:
    inner = FakeConfig(vocab_size=32000, max_position_embeddings=4096)
    hub["org/model"] = FakeConfig(architectures=["LlavaForConditionalGeneration"], text_config=inner)
    result = run("check", write(tmp_path, GOOD), "--model", "org/model")
    assert result.exit_code == 0
    for fact in ("LlavaForConditionalGeneration", "32,000 tokens", "4,096 tokens"):
        assert fact in result.stdout


@pytest.mark.parametrize(("context", "code"), [(4, 1), (5, 0)])
def test_drafts_must_fit_the_context(tmp_path: Path, hub: dict[str, Any], context: int, code: int) -> None:
    hub["org/model"] = FakeConfig(architectures=None, max_position_embeddings=context)
    result = run("check", write(tmp_path, GOOD), "--model", "org/model")
    assert result.exit_code == code
    complaint = f"draft_length.tokens: got 4; allowed: below the model's max_position_embeddings, {context}"
    assert (complaint in result.stderr) == bool(code)
    assert ("OK" in result.stdout) != bool(code)


def test_a_model_that_says_nothing_is_no_mistake(tmp_path: Path, hub: dict[str, Any]) -> None:
    hub["org/model"] = FakeConfig()
    result = run("check", write(tmp_path, GOOD), "--model", "org/model")
    assert result.exit_code == 0
    assert result.stdout.count("not given by the model") == 3


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("no/such", "no/such is unknown; allowed: a model's folder or a hub name"),
        ("", "''"),
        ("x" * 5000, "File name too long"),
        ("a\x00\x1b", "unknown"),
    ],
)
def test_a_model_that_cannot_be_read(tmp_path: Path, hub: dict[str, Any], model: str, reason: str) -> None:
    result = run("check", write(tmp_path, GOOD), "--model", model)
    assert result.exit_code == 1
    assert "plugin.yaml: OK" in result.stdout  # the file itself is still checked
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("--model ")
    assert reason in result.stderr
    assert "\x1b" not in result.stderr


def test_a_folder_that_is_no_model(tmp_path: Path, hub: dict[str, Any]) -> None:
    result = run("check", write(tmp_path, GOOD), "--model", tmp_path)
    assert result.exit_code == 1
    assert "has no config.json" in result.stderr


def test_the_real_library_reads_a_local_folder(tmp_path: Path) -> None:
    facts = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 3}
    write(tmp_path, json.dumps({**facts, "vocab_size": 99}), "config.json")
    result = run("check", write(tmp_path, GOOD), "--model", tmp_path)
    assert "LlamaForCausalLM" in result.stdout
    assert "99 tokens" in result.stdout
    assert "max_position_embeddings, 3" in result.stderr


DRAFT = str(model_path("draft"))
TARGET = str(model_path("target"))


def draft_model(folder: Path, model: str, **keys: object) -> Path:
    """Writes a file whose proposer is a draft model."""
    return write(folder, json.dumps({"proposer": {"method": "draft_model", "model": model, **keys}}))


def test_a_draft_model_is_printed_with_what_its_defaults_mean(tmp_path: Path) -> None:
    result = run("check", draft_model(tmp_path, "org/small"))
    assert result.exit_code == 0
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in result.stdout.splitlines() if line.startswith("  ")}
    assert rows["proposer.model"] == "org/small given"
    assert rows["proposer.draft_temperature"] == "each request's own default"
    assert rows["proposer.min_confidence"] == "0.0 (off) default"
    assert rows["proposer.dtype"] == "the target's default"
    assert rows["proposer.quantization"] == "as the checkpoint says default"
    assert "fit" not in result.stdout  # nothing was compared


def test_a_draft_path_with_nothing_there_is_a_mistake(tmp_path: Path) -> None:
    for model in (str(tmp_path / "none"), "./none", "../no/such"):
        result = run("check", draft_model(tmp_path, model))
        assert result.exit_code == 1
        assert "OK" not in result.stdout
        assert result.stderr.startswith(
            f"{tmp_path}/plugin.yaml: proposer.model: there is no folder '{model}'; allowed: "
        )


def test_a_draft_that_fits_the_model(tmp_path: Path) -> None:
    result = run("check", draft_model(tmp_path, DRAFT), "--model", TARGET)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "  draft and target fit"
    assert result.stderr == ""


def test_a_draft_that_does_not_fit_the_model(tmp_path: Path) -> None:
    copy = tmp_path / "small"
    copy.mkdir()
    config = json.loads(Path(DRAFT, "config.json").read_text())
    write(copy, json.dumps({**config, "vocab_size": 77}), "config.json")
    result = run("check", draft_model(tmp_path, "small"), "--model", TARGET)
    assert result.exit_code == 1
    assert "OK" not in result.stdout
    assert (
        f"proposer.model: '{copy}' has a vocabulary of 77 tokens, the target '{TARGET}' one of 2,048" in result.stderr
    )


def test_a_fit_with_reservations_is_ok_and_says_them(tmp_path: Path) -> None:
    copy = tmp_path / "short"
    shutil.copytree(DRAFT, copy, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((copy / "config.json").read_text())
    write(copy, json.dumps({**config, "max_position_embeddings": 64}), "config.json")
    result = run("check", draft_model(tmp_path, "short"), "--model", TARGET)
    assert result.exit_code == 0
    assert "draft and target fit" in result.stdout
    assert result.stderr.startswith(f"warning: {tmp_path}/plugin.yaml: proposer.model: ")
    assert "drafts stop at token 64" in result.stderr


def test_a_model_that_cannot_be_read_is_not_compared_but_the_draft_is_looked_for(tmp_path: Path) -> None:
    result = run("check", draft_model(tmp_path, "./none"), "--model", tmp_path)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2
    assert "there is no folder './none'" in result.stderr


def medusa(folder: Path, num_heads: int = 3, tokens: int = 3, **keys: object) -> Path:
    """Writes heads, in the target's sizes, and a file that drafts with them."""
    import torch

    from vllm_spec_plugin.proposers.medusa.checkpoint import save_heads
    from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads

    if not (folder / "heads").exists():
        config = json.loads(Path(TARGET, "config.json").read_text())
        heads = MedusaHeads(config["hidden_size"], config["vocab_size"], num_heads, 1)
        save_heads(heads, folder / "heads", {}, torch.float16)
    proposer = {"method": "medusa", "model": "heads", **keys}
    return write(folder, json.dumps({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": tokens}}))


def test_heads_that_fit_the_model(tmp_path: Path) -> None:
    result = run("check", medusa(tmp_path), "--model", TARGET)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "  heads and target fit"
    assert result.stderr == ""


def test_heads_are_looked_at_without_a_model_too_but_nothing_is_compared(tmp_path: Path) -> None:
    result = run("check", medusa(tmp_path))
    assert result.exit_code == 0
    assert "fit" not in result.stdout
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in result.stdout.splitlines() if line.startswith("  ")}
    assert rows["proposer.tree"] == "a chain default"
    shutil.rmtree(tmp_path / "heads")
    result = run("check", tmp_path / "plugin.yaml")
    assert result.exit_code == 1
    assert "OK" not in result.stdout


@pytest.mark.parametrize(
    "tree",
    [None, [[0], [0, 0], [0, 0, 0], [0, 0, 0, 0]], "auto"],
    ids=["chain", "tree", "auto"],
)
def test_heads_that_cannot_draft_what_is_asked_for(tmp_path: Path, tree: object) -> None:
    """Too few of them, or nobody measured how often they are right."""
    result = run("check", medusa(tmp_path, tokens=4, tree=tree))
    assert result.exit_code == 1
    assert "OK" not in result.stdout
    [line] = result.stderr.splitlines()
    assert line.startswith(f"{tmp_path}/plugin.yaml: proposer.model: ")
    assert ("measured" if tree == "auto" else "4") in line


def test_help_is_cheap_and_names_every_command() -> None:
    code = (
        "import sys\nfrom vllm_spec_plugin.cli import app\n"
        "try: app(['--help'])\n"
        "finally: print([m for m in ('vllm', 'torch', 'transformers', 'numpy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("check", "train-demo", "bench", "demo"):
        assert re.search(rf"\b{command}\b", done.stdout)


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Calls of a stand-in for the training, which takes an hour."""
    calls: list[tuple[object, ...]] = []
    module: Any = ModuleType("vllm_spec_plugin.demo.train")
    module.TARGET_STEPS, module.DRAFT_STEPS = 10, 20
    module.train = lambda *arguments: calls.append(arguments)
    monkeypatch.setitem(sys.modules, "vllm_spec_plugin.demo.train", module)
    monkeypatch.setattr("vllm_spec_plugin.demo.train", module, raising=False)
    return calls


def test_train_demo_passes_its_options_on(tmp_path: Path, training: list[tuple[object, ...]]) -> None:
    assert run("train-demo", "--out", tmp_path / "a" / "b", "--draft-steps", "7").exit_code == 0
    assert training == [(tmp_path / "a" / "b", 10, 7)]
    assert (tmp_path / "a" / "b").is_dir()


def test_train_demo_refuses_before_an_hour_is_spent(tmp_path: Path, training: list[tuple[object, ...]]) -> None:
    file = write(tmp_path, "", "file")
    lines: list[list[str | Path]] = [["--out", file], ["--out", file / "x"], ["--out", tmp_path, "--draft-steps", "0"]]
    for arguments in [*lines, []]:
        result = run("train-demo", *arguments)
        assert result.exit_code != 0
        assert result.stderr
    assert training == []


def test_a_forwarded_command_gets_its_whole_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def stand_in(text: str, count: int = 1) -> None:
        """A stand-in's own help."""
        print(f"{text=} {count=}")

    module = ModuleType("stand_in")
    vars(module).update(demo=stand_in)
    monkeypatch.setitem(sys.modules, "vllm_spec_plugin.cli.demo", module)
    assert run("demo", "--count", "3", "--", "--x").stdout == "text='--x' count=3\n"
    assert "A stand-in's own help" in run("demo", "--help").stdout
    assert run("demo", "--count", "x", "y").exit_code == 2
