"""Compares the parts of vLLM that the plugin replaces between versions: make seams [VLLM=0.33.0] [UPDATE=1].

`compat/seams.json` has a hash of each method of vLLM that a class of the plugin overrides, and of each name in `NAMED`.
mypy checks the other uses of vLLM: their names and types.
"""

import argparse
import ast
import hashlib
import importlib
import json
import pkgutil
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from packaging.version import Version

import vllm_spec_plugin
from tests.wheels import DownloadError, download

PLUGIN = vllm_spec_plugin.__name__
LIST = Path(vllm_spec_plugin.__file__).parent / "compat" / "seams.json"
Root: TypeAlias = Path | zipfile.Path
Pins: TypeAlias = Mapping[str, str | None]
_OPENAI = "vllm.entrypoints.openai"
# Names, "module:Class.method", that no class of the plugin overrides, by module of the plugin.
NAMED: dict[str, tuple[str, ...]] = {
    # Wrapped.
    "compat.engine_args": (
        "vllm.engine.arg_utils:EngineArgs.add_cli_args",
        "vllm.engine.arg_utils:EngineArgs.create_engine_config",
    ),
    "compat.frontend": (
        "vllm.sampling_params:SamplingParams._validate_spec_decode",
        "vllm.v1.engine.async_llm:AsyncLLM.shutdown",
        "vllm.v1.engine.input_processor:InputProcessor.process_inputs",
        *(f"vllm.v1.engine.output_processor:RequestOutputCollector.{name}" for name in ("put", "get", "get_nowait")),
        *(f"vllm.v1.metrics.loggers:StatLoggerManager.{name}" for name in ("log_engine_initialized", "record")),
    ),
    "compat.openai_api": (
        "vllm.sampling_params:SamplingParams.verify",
        *(
            f"{_OPENAI}.chat_completion.serving:OpenAIServingChat.{name}"
            for name in ("render_chat_request", "chat_completion_full_generator", "chat_completion_stream_generator")
        ),
        *(
            f"{_OPENAI}.completion.serving:OpenAIServingCompletion.{name}"
            for name in ("render_completion_request", "completion_stream_generator")
        ),
        f"{_OPENAI}.completion.serving:OpenAIServingCompletion.request_output_to_completion_response",
    ),
    "compat.early_refusal": (
        f"{_OPENAI}.chat_completion.serving:OpenAIServingChat.create_chat_completion",
        f"{_OPENAI}.completion.serving:OpenAIServingCompletion.create_completion",
        f"{_OPENAI}.responses.serving:OpenAIServingResponses.create_responses",
    ),
    "v1.compat.tree_attention": tuple(
        f"vllm.v1.attention.backends.{module}:{name}.do_kv_cache_update"
        for module, name in (
            ("cpu_attn", "CPUAttentionBackendImpl"),
            ("flash_attn", "FlashAttentionImpl"),
            ("flashinfer", "FlashInferImpl"),
            ("triton_attn", "TritonAttentionImpl"),
        )
    ),
    # Replaced on the live object, or called there in another order than vLLM's.
    "compat.catch_up": (
        "vllm.v1.worker.gpu.spec_decode.speculator:DraftModelSpeculator._build_attn_metadata",
        "vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator:StandaloneARSpeculator._run_model",
        "vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator:StandaloneARSpeculator.propose",
    ),
    "compat.resting": (
        "vllm.v1.spec_decode.llm_base_proposer:SpecDecodeBaseProposer.prepare_next_token_ids_padded",
        "vllm.v1.spec_decode.llm_base_proposer:SpecDecodeBaseProposer.propose",
    ),
    "v1.compat.cpu_sampler": tuple(
        f"vllm.v1.worker.gpu_model_runner:GPUModelRunner.{name}" for name in ("_sample", "_bookkeeping_sync")
    ),
    "compat.runner": ("vllm.v1.worker.cpu_model_runner:CPUModelRunner._sync_device",),
    "v1.drafting.drafter": ("vllm.v1.spec_decode.custom_class_proposer:create_custom_proposer",),
    # The argument order of kernels; where `do_not_compile` is read.
    "v1.compat.cpu_pass": (
        "vllm._custom_ops:cpu_attention_with_kv_cache",
        "vllm._custom_ops:cpu_attn_get_scheduler_metadata",
        "vllm._custom_ops:cpu_attn_reshape_and_cache",
        "vllm.compilation.decorators:_support_torch_compile",
    ),
    # Read by name.
    "compat.read_facts": (
        "vllm.config.compilation:PassConfig.fuse_qk_norm_rope_kvcache",
        "vllm.config.compilation:PassConfig.fuse_rope_kvcache",
        "vllm.config.compilation:PassConfig.fuse_rope_kvcache_cat_mla",
    ),
    "v1.compat.draft_attention": (
        "vllm.config.cache:CacheConfig.block_size",
        "vllm.config.cache:CacheConfig.kv_cache_layout",
        "vllm.config.cache:CacheConfig.num_gpu_blocks",
    ),
}
# It patches vLLM as it is imported.
_PATCHING = f"{PLUGIN}.v1.compat.cpu_sampler"
# Of a syntax tree: what has no meaning, or is there in some versions of Python only.
_SKIPPED = ("ctx", "kind", "type_comment", "type_params")


def names_in_use() -> dict[str, set[str]]:
    """Per name of vLLM, "module:Class.method", the modules of the plugin that replace it. Imports the whole plugin."""
    found: dict[str, set[str]] = {}
    for module, keys in NAMED.items():
        for key in keys:
            found.setdefault(key, set()).add(module)
    names = [info.name for info in pkgutil.walk_packages(vllm_spec_plugin.__path__, f"{PLUGIN}.")]
    for name in names:
        classes = vars(importlib.import_module(name)).values() if name != _PATCHING else ()
        for own in [each for each in classes if isinstance(each, type) and each.__module__ == name]:
            _add_overridden(own, found)
    return found


def _add_overridden(own: type[Any], found: dict[str, set[str]]) -> None:
    theirs = [base for base in own.__mro__ if base.__module__.startswith("vllm.")]
    for ours in [base for base in own.__mro__ if base.__module__.startswith(PLUGIN)] if theirs else ():
        for name in vars(ours).keys() - {"__doc__", "__module__", "__abstractmethods__", "_abc_impl"}:
            base = next((base for base in theirs if name in vars(base)), None)
            if base is not None and callable(getattr(base, name)):
                key = f"{base.__module__}:{base.__qualname__}.{name}"
                found.setdefault(key, set()).add(ours.__module__.removeprefix(f"{PLUGIN}."))


def code_hash(root: Root, key: str) -> str | None:
    """Hash of the code that defines a name, without comments and docstrings; None if its module does not.

    Args:
        root: the folder of vLLM's package, or its wheel.
    """
    module, _, name = key.partition(":")
    path = module.replace(".", "/")
    file = next((each for each in (root / f"{path}.py", root / f"{path}/__init__.py") if each.is_file()), None)
    nodes: list[ast.AST] = [] if file is None else [ast.parse(file.read_text(encoding="utf-8"))]
    for part in name.split("."):
        nodes = [each for node in nodes for each in _flat(node) if part in _bound(each)]
    return hashlib.sha256(repr([_shape(node) for node in nodes]).encode()).hexdigest()[:12] if nodes else None


def _flat(node: ast.AST) -> Iterable[ast.AST]:
    """Statements of a module or class, also under `if` and `try`."""
    for each in ast.iter_child_nodes(node):
        yield each
        if isinstance(each, ast.If | ast.Try):
            yield from _flat(each)


def _bound(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _shape(code: object) -> object:
    """A syntax tree without positions and docstrings, the same in every supported version of Python."""
    if isinstance(code, list):
        return [_shape(part) for part in code if not (isinstance(part, ast.Expr) and _is_text(part.value))]
    if not isinstance(code, ast.AST):
        return code
    parts = [(field, value) for field, value in ast.iter_fields(code) if field not in _SKIPPED]
    return [type(code).__name__, *((field, _shape(value)) for field, value in parts if value not in (None, []))]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def read_list() -> dict[str, dict[str, str | None]]:
    """By version, oldest first, the hashes by name."""
    listed: dict[str, dict[str, str | None]] = json.loads(LIST.read_text())
    return listed


def write_list(pins: Mapping[str, Pins]) -> None:
    """Writes the list."""
    ordered = {each: dict(sorted(pins[each].items())) for each in sorted(pins, key=Version)}
    LIST.write_text(json.dumps(ordered, indent=1) + "\n")


def changes(before: Pins, now: Pins) -> dict[str, str]:
    """Names whose code is "gone" or "changed"."""
    kinds = {key: "changed" if now.get(key) else "gone" for key, old in before.items() if now.get(key) != old}
    return dict(sorted(kinds.items(), key=lambda item: (item[1] != "gone", item[0])))


def open_vllm(wanted: str | None) -> tuple[str, Root]:
    """The release of the installed vLLM and the folder of its package, or that version and its wheel.

    Raises:
        DownloadError: there is no wheel of that version.
        ModuleNotFoundError: no vLLM is installed.
    """
    if wanted is None:
        spec = find_spec("vllm")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("vllm is not installed")
        return version("vllm").split("+")[0], Path(spec.origin).parent.parent
    wheel = download(wanted)
    try:
        return wanted, zipfile.Path(wheel)
    except zipfile.BadZipFile:
        raise DownloadError(f"{wheel} is damaged: delete it and try again") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what changed; 1 if the list must follow, 2 if nothing could be compared."""
    parser = argparse.ArgumentParser(prog="tests.seams", description=__doc__)
    parser.add_argument("--vllm", metavar="VERSION", help="this version, not the installed one")
    parser.add_argument("--update", action="store_true", help="write down what the names are in that vLLM")
    options = parser.parse_args(arguments)
    try:
        return _run(options.vllm, is_update=options.update)
    except (DownloadError, ModuleNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(wanted: str | None, *, is_update: bool) -> int:
    listed, used_by = read_list(), names_in_use()
    if wanted in listed and not is_update:
        earlier = [each for each in listed if Version(each) < Version(wanted)]
        if not earlier:
            raise ValueError(f"vLLM {wanted} is the first in {LIST.name}; allowed: a later one")
        found, before, now = wanted, earlier[-1], listed[wanted]
    else:
        found, vllm = open_vllm(wanted)
        now = {key: code_hash(vllm, key) for key in used_by}
        if is_update:
            return _update(found, now, listed)
        before = found if found in listed else list(listed)[-1]
    print(f"vLLM {found}, compared with {len(listed[before])} names listed for vLLM {before}")
    differing = changes(listed[before], now)
    for key, kind in differing.items():
        print(f"  {kind:7}  {key}  [{', '.join(sorted(used_by.get(key, ())))}]")
    stale = listed[before].keys() ^ used_by.keys() if before == found else ()
    if stale:
        print(f"Not in {LIST.name} as in the plugin's code; run make seams UPDATE=1:", *sorted(stale), sep="\n  ")
    return int(bool(stale or differing) and wanted not in listed)


def _update(found: str, now: Pins, listed: Mapping[str, Pins]) -> int:
    if gone := sorted(key for key, pin in now.items() if pin is None):
        print(f"vLLM {found} lacks these; stop using them first:", *gone, sep="\n  ")
        return 1
    write_list({**listed, found: now})
    print(f"{LIST.name}: {len(now)} names of vLLM {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
