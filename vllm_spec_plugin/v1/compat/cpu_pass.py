"""Compiles the draft model's pass as one graph, for vLLM's CPU backend: a small model's time is mostly Python.

vLLM compiles a model's layers, but calls its attention, its output head and its metadata from Python, about twenty
times in a pass. Here the graph goes from tokens to logits, and attention is one operator that calls vLLM's two kernels.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.compile_fx import compile_fx
from vllm import envs
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl, CPUAttentionMetadataBuilder

from vllm_spec_plugin.v1.compat.draft_attention import DraftAttention, PassBatch
from vllm_spec_plugin.v1.compat.draft_pass import DraftPass

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import Attention, VllmConfig

logger = logging.getLogger("vllm.vllm_spec_plugin")

# Sizes to compile with: distinct and above 1, so that the graph has both as variables.
_NUM_TOKENS, _NUM_ROWS = 7, 3
# Maximum difference of compiled and uncompiled results, as a share of the largest one.
_TOLERANCE = 0.02
# A part of a pass, and arguments for it by number of tokens and of rows.
Forward = Callable[..., tuple[torch.Tensor, ...]]
Example = Callable[[int, int], tuple[torch.Tensor, ...]]


@dataclass
class _Pass:
    """Attention metadata of a pass, shared by a model's layers.

    Attributes:
        batch: the pass's requests; None while there is no KV cache.
        schedules: per attention group, the division of the pass's work by vLLM's kernel; empty if nothing attends.
    """

    batch: PassBatch | None = None
    schedules: Sequence[torch.Tensor] = ()


class _Layer:
    """The properties of an attention layer that vLLM's kernels need."""

    def __init__(self, layer: "Attention", current: _Pass) -> None:
        impl = layer.impl
        assert isinstance(impl, CPUAttentionBackendImpl)
        self._layer, self._current = layer, current
        self._scales = (layer._k_scale_float, layer._v_scale_float, impl.kv_cache_dtype)
        self._scale, self._slopes, self._window = impl.scale, impl.alibi_slopes, impl.sliding_window
        self._softcap = impl.logits_soft_cap
        self._heads = (layer.num_heads, layer.num_kv_heads, layer.head_size)
        self._number = len(_layers)
        _layers.append(self)
        layer.forward = self.forward  # type: ignore[method-assign] # called in its place

    def bind(self, group: int, table: int) -> None:
        """Sets the layer's part of the KV cache, and its indices in a pass's schedules and block tables."""
        self._group, self._table = group, table
        cache = self._layer.kv_cache
        num_blocks, num_kv_heads, block_size, _ = cache.shape
        self._keys, self._values = cache.view(num_blocks, num_kv_heads, block_size * 2, -1).chunk(2, dim=2)
        self._isa = self._layer.isa
        # Looked up once: it takes as long as a small kernel.
        self._write = torch.ops._C.cpu_attn_reshape_and_cache.default
        self._attend = torch.ops._C.cpu_attention_with_kv_cache.default

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        output_shape: torch.Size | None = None,
        output_dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        """Replaces the layer's own `forward`."""
        num_heads, num_kv_heads, size = self._heads
        output: torch.Tensor = torch.ops.vllm_spec_plugin.paged_attention(
            query.view(-1, num_heads, size),
            key.view(-1, num_kv_heads, size),
            value.view(-1, num_kv_heads, size),
            self._number,
        )
        return output.view(query.shape[0], -1) if output_shape is None else output.view(output_shape)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Writes keys and values to the KV cache, then computes attention.

        Args:
            query: [num_tokens, num_heads, head_size].
            key: [num_tokens, num_kv_heads, head_size].
            value: like `key`.

        Returns:
            Like `query`; zeros while there is no KV cache, or if nothing attends.
        """
        output = torch.empty(query.shape, dtype=query.dtype)
        batch = self._current.batch
        if batch is None:
            return output.zero_()
        self._write(key, value, self._keys, self._values, batch.slots[self._table], self._isa, *self._scales)
        if not self._current.schedules:
            return output.zero_()
        self._attend(
            query,
            self._keys,
            self._values,
            output,
            batch.query_start,
            batch.lengths,
            self._scale,
            True,
            self._slopes,
            self._window,
            batch.blocks[self._table],
            self._softcap,
            self._current.schedules[self._group],
            None,
            None,
            *self._scales,
        )
        return output


# Layers by number, as operators take no objects.
_layers: list[_Layer] = []


def _paged_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int) -> torch.Tensor:
    return _layers[layer].attend(query, key, value)


def _paged_attention_shape(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int) -> torch.Tensor:
    return query.new_empty(query.shape)


_library = torch.library.Library("vllm_spec_plugin", "DEF")
_library.define("paged_attention(Tensor query, Tensor key, Tensor value, int layer) -> Tensor")
_library.impl("paged_attention", _paged_attention, "CPU")
_library.impl("paged_attention", _paged_attention_shape, "Meta")


class CPUPass(DraftPass):
    """Runs the draft model as one compiled graph, or uncompiled with `--enforce-eager`, with less Python than vLLM."""

    execution_mode = "uncompiled"

    def __init__(self, vllm_config: "VllmConfig", model: Any, layers: dict[str, "Attention"]) -> None:
        """See `DraftPass`. Afterwards the model cannot run in vLLM's way."""
        super().__init__(vllm_config, model, layers)
        self._current = _Pass()
        self._own_layers = {name: _Layer(layer, self._current) for name, layer in layers.items()}
        for module in model.modules():
            # Disables vLLM's own compilation of parts.
            if hasattr(module, "do_not_compile"):
                module.do_not_compile = True
        self._run: Forward = self._forward
        self._is_warm = False

    @staticmethod
    def suits(vllm_config: "VllmConfig", model: Any, layers: dict[str, "Attention"]) -> bool:
        """Whether the model suits: only plain decoder attention uses vLLM's forward context."""
        modules = {id(module) for module in model.modules()}
        stateful = vllm_config.compilation_config.static_forward_context
        return (
            {name for name, layer in stateful.items() if id(layer) in modules} == set(layers)
            and all(_is_plain(layer) for layer in layers.values())
            and vllm_config.parallel_config.tensor_parallel_size == 1
        )

    def warm_up(self, num_tokens: int, num_rows: int) -> None:
        """See `DraftPass`."""
        if self._vllm_config.compilation_config.mode and not self._is_warm:
            self._run = self.compiled(self._forward, example)
        self._is_warm = True
        self._run(*example(num_tokens, num_rows))

    def bind(self, attention: DraftAttention) -> None:
        """See `DraftPass`."""
        super().bind(attention)
        self._schedule = torch.ops._C.get_scheduler_metadata.default
        split = envs.VLLM_CPU_ATTN_SPLIT_KV
        # Per attention group the arguments before and after those that change from pass to pass.
        self._schedule_arguments = []
        for index, (group, table) in enumerate(zip(attention.groups, attention.tables, strict=True)):
            builder = group.get_metadata_builder()
            assert isinstance(builder, CPUAttentionMetadataBuilder)
            self._dtype = builder.dtype
            before = (builder.num_heads, builder.num_kv_heads, builder.head_dim)
            after = (True, builder.window_size, builder.isa, split, None, builder.kv_cache_dtype)
            self._schedule_arguments.append((before, after))
            for name in group.layer_names:
                self._own_layers[name].bind(index, table)

    def prepare(self, batch: PassBatch) -> None:
        """See `DraftPass`."""
        self._current.batch = batch
        n, lengths, starts = len(batch.lengths), batch.lengths, batch.query_start
        self._current.schedules = [
            self._schedule(n, *before, lengths, self._dtype, starts, *after)
            for before, after in self._schedule_arguments
        ]

    def renew(self) -> None:
        """See `DraftPass`: a graph holds the weights that it was compiled with, and what vLLM packs them into."""
        self._current.batch, self._is_warm = None, False
        self.warm_up(_NUM_TOKENS, _NUM_ROWS)

    def skip_attention(self) -> None:
        """Makes the prepared pass write keys and values only."""
        self._current.schedules = ()

    def run(self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """See `DraftPass`."""
        return self._run(token_ids, positions, rows)[0]

    def compiled(self, forward: Forward, example: Example) -> Forward:
        """Returns a part of the pass as one compiled graph, or uncompiled if that fails.

        Args:
            forward: takes tensors, of which the first has num_tokens entries and the third num_rows.
            example: arguments of `forward` by num_tokens and num_rows.
        """
        try:
            graph = _Graph(forward, example)
            for sizes in ((1, 1), (2 * _NUM_TOKENS, _NUM_ROWS)):
                for found, expected in zip(graph(*example(*sizes)), forward(*example(*sizes)), strict=True):
                    if not _is_close(found, expected):
                        raise RuntimeError(f"compiled and uncompiled results differ with {sizes[0]} tokens")
        except Exception:
            # Affects the draft model's speed only.
            logger.warning("draft model could not be compiled; it runs uncompiled, drafts cost more", exc_info=True)
            self.execution_mode = "uncompiled"
            return forward
        self.execution_mode = "compiled"
        return graph

    def _forward(self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor]:
        states = self._model(input_ids=token_ids, positions=positions, inputs_embeds=None)
        return (self._model.compute_logits(states[rows]),)


class _Graph:
    """A compiled function for any number of tokens and rows, called without Dynamo and its guards in between.

    The graph's inputs are the arguments, their sizes and the model's weights, in an order of Dynamo's choice.
    """

    def __init__(self, forward: Forward, example: Example) -> None:
        arguments = example(_NUM_TOKENS, _NUM_ROWS)

        def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
            self._compiled: Any = compile_fx(graph, inputs)

            def first_call(*inputs: Any) -> Any:
                self._inputs = list(inputs)
                return self._compiled(*inputs)

            return first_call

        with (
            torch._dynamo.config.patch(specialize_float=True),
            torch._inductor.config.patch(size_asserts=False, alignment_asserts=False, scalar_asserts=False),
        ):
            torch.compile(forward, dynamic=True, fullgraph=True, backend=backend)(*arguments)
        # Per replaced input of the graph, its index and that of its value in `__call__`.
        self._replaced: list[tuple[int, int]] = []
        for index, value in enumerate(self._inputs):
            known = [i for i, ours in enumerate((*arguments, _NUM_TOKENS, _NUM_ROWS)) if _same(value, ours)]
            self._replaced += [(index, i) for i in known]

    def __call__(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Calls the graph with other arguments of these shapes, but for both numbers."""
        values = (*arguments, len(arguments[0]), len(arguments[2]))
        inputs = self._inputs.copy()
        for index, i in self._replaced:
            inputs[index] = values[i]
        results: tuple[torch.Tensor, ...] = self._compiled(*inputs)
        return results


def _is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two results differ little; -inf, for tokens outside a vocabulary, must be at the same positions."""
    outside = expected.isneginf()
    if not torch.equal(found.isneginf(), outside):
        return False
    found, expected = found.masked_fill(outside, 0), expected.masked_fill(outside, 0)
    return bool((found - expected).abs().max() <= _TOLERANCE * expected.abs().max())


def _same(one: Any, other: Any) -> bool:
    return one == other if isinstance(one, int) and isinstance(other, int) else one is other


def _is_plain(layer: "Attention") -> bool:
    impl = layer.impl
    return (
        type(impl) is CPUAttentionBackendImpl
        and impl.attn_type == "decoder"
        and impl.sinks is None
        and layer.kv_sharing_target_layer_name is None
        and layer.query_quant is None
        and layer.head_size_v == layer.head_size
    )


def example(num_tokens: int, num_rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns tokens, positions and rows of a pass."""
    # Different tokens, which every vocabulary and context has.
    tokens = torch.arange(num_tokens) % 4
    return tokens.int(), tokens, torch.arange(num_rows) % num_tokens
