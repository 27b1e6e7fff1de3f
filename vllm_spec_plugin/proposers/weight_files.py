"""Checks a model's weight files by their headers, without reading weights."""

from pathlib import Path

from vllm_spec_plugin.proposers.model_files import UnreadableError, indexed_files, tensor_shapes
from vllm_spec_plugin.proposers.model_source import ModelSource, read_facts
from vllm_spec_plugin.schema.errors import show_file, show_text

# vLLM's values of --load-format that read safetensors.
LOAD_FORMATS = ("auto", "hf", "safetensors", "fastsafetensors", "runai_streamer")
_AGAIN = "download or save the model again"


def check_weights(source: ModelSource, load_format: str) -> str:
    """Checks that all weight files are there, whole, and as large as the config says where that is known.

    Args:
        source: the model.
        load_format: value of vLLM's --load-format.

    Returns:
        Why nothing was checked; empty if it was.

    Raises:
        UnreadableError: names the file and what is wrong.
    """
    if load_format not in LOAD_FORMATS:
        return f"the weights of {source.shown} (--load-format {load_format})"
    is_local = Path(source.model).is_dir()
    folder = Path(source.model) if is_local else _cached(source)
    if folder is None or not any(folder.glob("*.safetensors")):
        if folder is not None and any(any(folder.glob(pattern)) for pattern in ("*.bin", "*.pt")):
            return f"the weights of {source.shown}, which are not in safetensors"
        if not is_local:
            return f"the weights of {source.shown}, which are not downloaded"
        raise UnreadableError(
            f"{show_file(Path(source.model))} has no weights; allowed: files of safetensors; {_AGAIN}"
        )
    try:
        vocab_size = read_facts(source).vocab_size
    except UnreadableError:  # vLLM serves models that transformers does not know
        vocab_size = None
    files = indexed_files(folder, _AGAIN) or {path: set() for path in sorted(folder.glob("*.safetensors"))}
    for path, names in files.items():
        shapes = tensor_shapes(path, _AGAIN)
        if missing := sorted(names - shapes.keys()):
            raise UnreadableError(f"{show_file(path)}: lacks the tensor '{show_text(missing[0])}'; {_AGAIN}")
        for name, shape in shapes.items():
            # Other tensors' shapes depend on architecture and quantization.
            if name.endswith(".embed_tokens.weight") and vocab_size is not None and shape[0] != vocab_size:
                raise UnreadableError(
                    f"{show_file(path)}: tensor '{show_text(name)}' has {shape[0]:,} rows; allowed: {vocab_size:,}, "
                    f"the vocab_size in config.json; {_AGAIN}"
                )
    return ""


def _cached(source: ModelSource) -> Path | None:
    """The folder of a model that was downloaded before; None if there is none."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source.model, revision=source.revision, local_files_only=True))
    except Exception:  # not downloaded, or no name that the hub takes
        return None
