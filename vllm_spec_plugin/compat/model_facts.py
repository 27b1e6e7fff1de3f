"""Properties of target, draft model and server that decide whether speculation is exact."""

from dataclasses import dataclass, field
from enum import StrEnum


class Layer(StrEnum):
    """Kinds of layers that keep state between steps, by what they keep."""

    FULL = "full attention"
    SLIDING = "sliding-window attention"
    CHUNKED = "chunked local attention"
    MLA = "multi-head latent attention (MLA)"
    RECURRENT = "recurrent state"
    CROSS = "cross attention"
    ENCODER = "encoder attention"


@dataclass(frozen=True)
class ModelFacts:
    """Describes a model.

    Attributes:
        name: folder or name on the Hugging Face hub.
        architecture: class name of the model in vLLM.
        layers: kinds of its layers with state; `Layer`, or the name of an unknown kind.
        is_moe: whether it has experts.
        generates: whether it generates text token by token; pooling, diffusion and encoder-decoder models do not.
        takes_media: whether requests may have images, audio or video.
        attends_both_ways: whether tokens of an image attend to later ones of it (prefix language models).
        has_mrope: whether positions have several dimensions (M-RoPE).
    """

    name: str
    architecture: str
    layers: frozenset[str] = frozenset({Layer.FULL})
    is_moe: bool = False
    generates: bool = True
    takes_media: bool = False
    attends_both_ways: bool = False
    has_mrope: bool = False


@dataclass(frozen=True)
class ServerFacts:
    """Describes how a server runs its models. The last five are known only once the KV cache is laid out.

    Attributes:
        on_cpu: whether it runs on CPUs.
        is_asynchronous: whether the next step is scheduled before the outputs of the last one are known.
        pipeline_parallel_size: pipeline stages.
        decode_context_parallel_size: ranks that share the KV cache of one sequence.
        prefill_context_parallel_size: ranks that share the prefill of one sequence.
        data_parallel_size: replicas that serve one endpoint.
        splits_batches: whether steps are split into micro-batches (dual-batch overlap).
        moves_experts: whether experts move between ranks while serving (EPLB, elastic expert parallelism).
        kv_connector: name of the KV connector; empty is none.
        has_fast_prefill: whether layers that share KV skip prompts (`--kv-sharing-fast-prefill`).
        logits_processors: names of custom logits processors.
        full_cuda_graphs: whether CUDA graphs hold whole steps.
        captures_kv_writes: whether piecewise CUDA graphs hold the calls that write keys and values.
        fused_kv_writes: compiler passes that write keys and values in a fused kernel.
        num_kv_groups: KV cache groups.
        split_block_size: tokens of a KV cache block that the attention backend splits; None if it splits none.
        backends_that_write: attention backends that write keys and values during attention.
        other_layers: attention layers that do not write keys and values by vLLM's common call.
    """

    on_cpu: bool = False
    is_asynchronous: bool = False
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    prefill_context_parallel_size: int = 1
    data_parallel_size: int = 1
    splits_batches: bool = False
    moves_experts: bool = False
    kv_connector: str = ""
    has_fast_prefill: bool = False
    logits_processors: tuple[str, ...] = ()
    full_cuda_graphs: bool = False
    captures_kv_writes: bool = False
    fused_kv_writes: tuple[str, ...] = ()
    num_kv_groups: int = 1
    split_block_size: int | None = None
    backends_that_write: tuple[str, ...] = ()
    other_layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """The input of `rules.refusals`.

    Attributes:
        target: the served model.
        draft: the draft model; None if no proposer has one.
        server: settings of the server.
    """

    target: ModelFacts
    draft: ModelFacts | None = None
    server: ServerFacts = field(default_factory=ServerFacts)
