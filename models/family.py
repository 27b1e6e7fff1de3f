"""Shapes of the bundled models."""

from dataclasses import dataclass

from transformers import LlamaConfig

VOCAB_SIZE = 2048
MAX_LENGTH = 2048


@dataclass(frozen=True)
class Shape:
    """A Llama architecture. Head sizes are 32 or 64: what vLLM's CPU attention takes."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int

    def config(self) -> LlamaConfig:
        return LlamaConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.hidden // self.heads,
            max_position_embeddings=MAX_LENGTH,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=0,
            initializer_range=0.02,
        )

    def weights_per_token(self) -> int:
        """Weights that one decoded token is multiplied with: the cost of a token, in multiply-adds."""
        head_dim = self.hidden // self.heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * head_dim
        mlp = 3 * self.hidden * self.intermediate
        return self.layers * (attention + mlp) + VOCAB_SIZE * self.hidden


TARGET = Shape(layers=4, hidden=256, intermediate=768, heads=4, kv_heads=2)
DRAFT = Shape(layers=2, hidden=192, intermediate=288, heads=6, kv_heads=1)
