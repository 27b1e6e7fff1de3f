"""Tests that commands, tests and vLLM's source are as the documentation says."""

import inspect
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
import vllm
from vllm.config import SpeculativeConfig, VllmConfig
from vllm.config.speculative import RejectionSampleMethod
from vllm.sampling_params import SamplingParams
from vllm.v1.sample import rejection_sampler
from vllm.v1.sample.logits_processor import STR_SPEC_DEC_REJECTS_LOGITSPROCS
from vllm.v1.spec_decode.suffix_decoding import SuffixDecodingProposer
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from benchmarks.__main__ import app as benchmarks
from vllm_spec_plugin.compat.version import VERSION
from vllm_spec_tools.cli import app

ROOT = Path(__file__).parents[3]
FOLDERS = ("", "docs", "docs/design", "docs/observability", "deploy", "loadtests", "recipes")
PAGES = sorted(page for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))
CODE = re.compile(r"^```\w*\n(.*?)^```|`([^`\n]+(?:\n[^`\n]+)?)`", re.MULTILINE | re.DOTALL)
PROGRAMS = {"vllm-spec": app, "benchmarks": benchmarks}
# Everything after these goes to vLLM or Locust.
FOREIGN = {"check", "doctor", "loadtest"}


def commands(text: str) -> list[str]:
    """Returns the command lines of `vllm-spec` and `python -m benchmarks` in a page's code, without comments."""
    code = "\n".join(block or span.replace("\n", " ") for block, span in CODE.findall(text))
    lines = code.replace("\\\n", " ").splitlines()
    found = [re.search(r"(?:^|\s)(vllm-spec|python -m benchmarks)((?: [^#|;&]+)?)", line) for line in lines]
    return [f"{match[1]}{match[2]}".strip() for match in found if match]


def complaint(line: str) -> str | None:
    """Returns what does not exist of a command line: a subcommand or an option; None if all does."""
    program, _, rest = line.replace("python -m benchmarks", "benchmarks").partition(" ")
    command: Any = typer.main.get_command(PROGRAMS[program])
    words = rest.split(" -- ")[0].split()
    name = ""
    while words and name not in FOREIGN and words[0] in getattr(command, "commands", {}):
        name = words.pop(0)
        command = command.commands[name]
    if hasattr(command, "commands") and words and re.fullmatch(r"[a-z][a-z0-9-]+", words[0]):
        return f"{line}: no subcommand {words[0]}"
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in known | {"--help"}]
    return f"{line}: no option {unknown[0]}" if unknown and name not in FOREIGN else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_their_options_exist(page):
    assert not [found for line in commands(page.read_text()) if (found := complaint(line))]


def test_a_command_or_option_that_does_not_exist_is_found():
    text = "`vllm-spec bnch --arm none`, `vllm-spec bench --arms none`\n```\npython -m benchmarks ngrm # x"
    text += "\nvllm-spec plan --model M\n```"
    assert [complaint(line) for line in commands(text)] == [
        "vllm-spec bnch --arm none: no subcommand bnch",
        "vllm-spec bench --arms none: no option --arms",
        "python -m benchmarks ngrm: no subcommand ngrm",
        None,
    ]
    assert len([line for page in PAGES for line in commands(page.read_text())]) > 50


def test_the_tests_behind_the_claims_exist():
    text = (ROOT / "docs" / "claims.md").read_text()
    tests = re.findall(r"\b(tests/[\w/.]+)(?:::(\w+))?", text)
    assert len(tests) > 15
    for path, function in tests:
        assert (ROOT / path).exists(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(), function


def test_vllm_runs_custom_classes_and_suffixes_on_v1_without_async_scheduling():
    unsupported = inspect.getsource(VllmConfig._get_v2_model_runner_unsupported_features)
    gone = () if VERSION >= (0, 33) else ("medusa", "mlp_speculator")
    assert all(f'"{method}"' in unsupported for method in ("custom_class", "suffix", *gone))
    text = inspect.getsource(VllmConfig)
    assert "Async scheduling not supported with %s-based" in text or "v1_async_sched_incompat" in text
    assert "enable_adaptive_verification" in inspect.getsource(VllmConfig._get_v1_model_runner_unsupported_features)
    assert "requires full CUDA graphs" in inspect.getsource(VllmConfig._validate_adaptive_verification)


def test_vllm_has_draft_lengths_by_batch_size_and_block_verification_on_v2():
    assert "num_speculative_tokens_per_batch_size" in SpeculativeConfig.__dataclass_fields__
    # A table that changes K stops the engine there.
    assert "assert num_speculative_tokens == self.num_" in inspect.getsource(SuffixDecodingProposer.propose)
    assert "block" in get_args(RejectionSampleMethod)
    assert '"block"' not in inspect.getsource(rejection_sampler)
    # Read, as the V2 runner's modules need a GPU.
    v2 = Path(vllm.__file__).parent / "v1" / "worker" / "gpu" / "spec_decode" / "rejection_sampler.py"
    assert '"block"' in v2.read_text()


def test_vllm_drafts_greedily_unless_asked():
    assert SpeculativeConfig.__dataclass_fields__["draft_sample_method"].default == "greedy"


def test_vllms_adaptive_verification_serves_neither_pipelines_nor_adapters():
    text = inspect.getsource(VllmConfig._validate_adaptive_verification)
    assert "pipeline_parallel_size > 1" in text
    assert "lora_config is not None" in text


def test_vllm_refuses_min_p_logit_bias_and_custom_processors_with_speculation():
    assert "min_p and logit_bias" in inspect.getsource(SamplingParams._validate_spec_decode)
    assert "not supported when speculative decoding" in STR_SPEC_DEC_REJECTS_LOGITSPROCS


def test_vllms_v1_runner_drops_all_drafts_where_one_request_nears_the_end_of_its_context():
    assert "max_seq_len" in inspect.getsource(GPUModelRunner._input_fits_in_drafter)
