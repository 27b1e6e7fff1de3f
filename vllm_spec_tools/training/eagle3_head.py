"""The forward pass of an EAGLE-3 head in plain torch: what is trained, and what the engine is compared with."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from vllm_spec_plugin.proposers.eagle3.checkpoint import Head
from vllm_spec_plugin.proposers.eagle3.layout import HeadConfig

Memory = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values of each step so far, [rows, num_kv_heads, length, head_dim] each."""
Rotation = tuple[torch.Tensor, torch.Tensor]


class Eagle3Head(nn.Module):
    """Computes chains of draft tokens from every position of texts at once (Li et al., arXiv 2503.01840, section 3).

    The chain from position b starts with the target's hidden states at b and the token b + 1, and predicts token b + 2.
    Its step s has the output of step s - 1 in place of hidden states, the token b + s + 1 and position b + s. It
    attends to step 0 of positions up to b, and to its own steps. Parameters have the names of the speculators layout.
    """

    def __init__(self, config: HeadConfig) -> None:
        """Creates random weights, float32 on the CPU."""
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        super().__init__()
        self.config = config
        aux = config.target_hidden_size * config.num_aux_layers
        eps = config.layer.get("rms_norm_eps", 1e-6)
        self.input_norm = _Norm(aux, eps) if config.norm_before_fc else None
        norms = (_Norm(config.target_hidden_size, eps) for _ in range(config.num_aux_layers))
        self.fc_norm = nn.ModuleList(norms) if config.fc_norm else None
        self.fc = nn.Linear(aux, config.hidden_size, bias=False)
        llama = LlamaConfig(**config.layer)
        self.layers = nn.ModuleList(_Layer(config, llama, i, eps) for i in range(config.num_layers))
        self.norm = _Norm(config.hidden_size, eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self._rotary: Any = LlamaRotaryEmbedding(llama)

    @classmethod
    def load(cls, head: Head) -> "Eagle3Head":
        """Creates a head with the weights of a folder, converted to float32."""
        module = cls(head.config)
        weights = head.weights()
        module.load_state_dict({name: weights[name].float() for name in module.state_dict()})
        return module.eval()

    def combine(self, states: torch.Tensor) -> torch.Tensor:
        """Returns the features, [..., hidden_size], of the target's auxiliary hidden states, side by side."""
        if self.input_norm is not None:
            states = self.input_norm(states)
        if self.fc_norm is not None:
            parts = states.chunk(len(self.fc_norm), -1)
            states = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        features: torch.Tensor = self.fc(states)
        return features

    def unroll(self, embeddings: torch.Tensor, features: torch.Tensor, num_steps: int) -> Iterator[torch.Tensor]:
        """Computes the chains from all positions; yields each step's hidden states before `lm_head`.

        Args:
            embeddings: [rows, length + num_steps - 1, hidden_size], embedding of the token after each position.
            features: [rows, length, hidden_size], of the target's hidden states at each position.
            num_steps: tokens per chain.

        Yields:
            [rows, length, hidden_size], index b is the chain from position b.
        """
        length = features.shape[1]
        positions = torch.arange(length, device=features.device)[None]
        memories: list[Memory] = [[] for _ in self.layers]
        hidden = features
        for step in range(num_steps):
            rotation = self._rotary(features, positions + step)
            inputs, residual = embeddings[:, step : step + length], hidden
            for layer, memory in zip(self.layers, memories, strict=True):
                hidden, residual = layer(inputs, hidden, residual, rotation, memory)
            residual = residual + hidden
            output: torch.Tensor = self.norm(residual)
            hidden = output if self.config.norm_output else residual
            yield output


class _Norm(nn.RMSNorm):
    """Normalises in the precision of its weight, also where training computes products in bfloat16."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.to(self.weight.dtype))


class _Attention(nn.Module):
    def __init__(self, config: HeadConfig, num_inputs: int) -> None:
        super().__init__()
        self._head_dim = config.head_dim
        self._group = config.num_heads // config.num_kv_heads
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.q_proj = nn.Linear(num_inputs, queries, bias=False)
        self.k_proj = nn.Linear(num_inputs, keys, bias=False)
        self.v_proj = nn.Linear(num_inputs, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)

    def forward(self, inputs: torch.Tensor, rotation: Rotation, memory: Memory) -> torch.Tensor:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

        query, key, value = (
            projection(inputs).unflatten(-1, (-1, self._head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = apply_rotary_pos_emb(query, key, *rotation)
        memory.append((key.repeat_interleave(self._group, 1), value.repeat_interleave(self._group, 1)))
        output: torch.Tensor = self.o_proj(_attend(query, memory).transpose(1, 2).flatten(2))
        return output


def _attend(query: torch.Tensor, memory: Memory) -> torch.Tensor:
    """Attends to the first step of earlier positions, and to the later steps of the same chain."""
    (keys, values), *own = memory
    if not own:
        return scaled_dot_product_attention(query, keys, values, is_causal=True)
    length = query.shape[2]
    ahead = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    scores = (query @ keys.mT).masked_fill(ahead, -torch.inf)
    of_chain = [(query * key).sum(-1, keepdim=True) for key, _ in own]
    probs = (torch.cat([scores, *of_chain], -1) * query.shape[-1] ** -0.5).softmax(-1)
    output: torch.Tensor = probs[..., :length] @ values
    for i, (_, value) in enumerate(own):
        output = output + probs[..., length + i, None] * value
    return output


class _Layer(nn.Module):
    def __init__(self, config: HeadConfig, llama: Any, index: int, eps: float) -> None:
        from transformers.models.llama.modeling_llama import LlamaMLP

        super().__init__()
        self._is_first = index == 0
        self._norms_residual = config.norm_before_residual
        self.self_attn = _Attention(config, config.hidden_size * (2 if self._is_first else 1))
        self.mlp = LlamaMLP(llama)
        self.input_layernorm = _Norm(config.hidden_size, eps)
        self.post_attention_layernorm = _Norm(config.hidden_size, eps)
        if self._is_first:
            self.hidden_norm = _Norm(config.hidden_size, eps)

    def forward(
        self,
        embeddings: torch.Tensor,
        hidden: torch.Tensor,
        residual: torch.Tensor,
        rotation: Rotation,
        memory: Memory,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._is_first:
            hidden = self.hidden_norm(hidden)
            residual = hidden if self._norms_residual else residual
            hidden = torch.cat([self.input_layernorm(embeddings), hidden], -1)
        else:
            residual = residual + hidden
            hidden = self.input_layernorm(residual)
        residual = residual + self.self_attn(hidden, rotation, memory)
        output: torch.Tensor = self.mlp(self.post_attention_layernorm(residual))
        return output, residual
