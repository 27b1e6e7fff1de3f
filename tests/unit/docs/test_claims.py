"""Commands, tests, pages and vLLM's source are as the documentation says."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import vllm
from vllm.config import SpeculativeConfig, VllmConfig
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


def test_the_tests_behind_the_claims_exist():
    text = (ROOT / "docs" / "claims.md").read_text()
    tests = re.findall(r"\b(tests/[\w/.]+)(?:::(\w+))?", text)
    assert len(tests) > 15
    for path, function in tests:
        assert (ROOT / path).exists(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(), function


def test_each_page_is_in_the_navigation_and_exists():
    # Its tag for a Python function is not plain YAML.
    nav = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert not [page for page in nav if not (ROOT / page).is_file()]
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")} <= set(nav)
    modules = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert modules
    assert all((ROOT / f"{name.replace('.', '/')}.py").is_file() for name in modules)


def sources() -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Per claim of the documentation about vLLM, the source that it is about, and what that says."""
    gone = () if VERSION >= (0, 33) else ('"medusa"', '"mlp_speculator"')
    v2 = Path(vllm.__file__).parent / "v1/worker/gpu/spec_decode/rejection_sampler.py"
    return {
        "V2 runs neither custom classes nor suffixes": (
            VllmConfig._get_v2_model_runner_unsupported_features,
            ('"custom_class"', '"suffix"', *gone),
        ),
        "adaptive verification needs V2": (
            VllmConfig._get_v1_model_runner_unsupported_features,
            ("enable_adaptive_verification",),
        ),
        "adaptive verification serves neither pipelines nor adapters": (
            VllmConfig._validate_adaptive_verification,
            ("requires full CUDA graphs", "pipeline_parallel_size > 1", "lora_config is not None"),
        ),
        "a table of draft lengths stops a suffix engine": (
            SuffixDecodingProposer.propose,
            ("assert num_speculative_tokens == self.num_",),
        ),
        "V2 verifies by blocks": (v2, ('"block"',)),
        "min_p and logit_bias are refused with speculation": (
            SamplingParams._validate_spec_decode,
            ("min_p and logit_bias",),
        ),
        "V1 drops all drafts where one request nears the end of its context": (
            GPUModelRunner._input_fits_in_drafter,
            ("max_seq_len",),
        ),
    }


@pytest.mark.parametrize("claim", sources())
def test_vllm_does_what_the_documentation_says_of_it(claim: str) -> None:
    source, words = sources()[claim]
    text = source.read_text() if isinstance(source, Path) else inspect.getsource(source)
    assert not [word for word in words if word not in text]


def test_vllms_options_are_as_the_documentation_says() -> None:
    fields = SpeculativeConfig.__dataclass_fields__
    assert "num_speculative_tokens_per_batch_size" in fields
    assert fields["draft_sample_method"].default == "greedy"
    assert '"block"' not in inspect.getsource(rejection_sampler)
    assert "not supported when speculative decoding" in STR_SPEC_DEC_REJECTS_LOGITSPROCS
