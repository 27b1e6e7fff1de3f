"""The Medusa heads, in torch alone."""

import torch
from torch.nn.functional import silu


class MedusaHeads(torch.nn.Module):
    """Predict the tokens after the next one from the target's last hidden state.

    With h_t the target's hidden state at position t, after its final norm (the input of its lm_head), the target gives
    token t+1, and head k, from 1, predicts token t+1+k. A head is `num_layers` blocks x + SiLU(Linear(x)) and a
    projection to the vocabulary without bias (Cai et al., section 2.1.1).

    The weights of all heads are in one tensor per layer, inputs before outputs, so that a pass is one batched matrix
    product per layer: the fastest layout measured on CPU for one row, and none was clearly faster for up to 64.

    Memory: num_heads * (num_layers * hidden_size * (hidden_size + 1) + vocab_size * hidden_size) weights, and as many
    multiply-adds per row; logits are num_heads * rows * vocab_size numbers of the weights' dtype.

    Attributes:
        block_weights: per layer, [num_heads, hidden_size, hidden_size], inputs before outputs.
        block_biases: per layer, [num_heads, 1, hidden_size].
        projection: [num_heads, hidden_size, vocab_size].
    """

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        num_heads: int,
        num_layers: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """Creates heads with weights of zero."""
        super().__init__()

        def zeros(*shape: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.zeros(num_heads, *shape, dtype=dtype, device=device))

        layers = range(num_layers)
        self.block_weights = torch.nn.ParameterList([zeros(hidden_size, hidden_size) for _ in layers])
        self.block_biases = torch.nn.ParameterList([zeros(1, hidden_size) for _ in layers])
        self.projection = zeros(hidden_size, vocab_size)

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return self.projection.shape[0]

    @property
    def num_layers(self) -> int:
        """Residual blocks per head."""
        return len(self.block_weights)

    @property
    def hidden_size(self) -> int:
        """Size of the target's hidden states."""
        return self.projection.shape[1]

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary."""
        return self.projection.shape[2]

    def forward(self, hidden: torch.Tensor, num_heads: int | None = None) -> torch.Tensor:
        """Computes the logits of every head for every row.

        Args:
            hidden: [rows, hidden_size], in the weights' dtype.
            num_heads: number of heads to run, from the first on; None is all.

        Returns:
            [num_heads, rows, vocab_size]; entry k has the logits of token t+2+k, with t the row's position.
        """
        heads = slice(num_heads)
        states = hidden.expand(self.projection[heads].shape[0], *hidden.shape)
        for weight, bias in zip(self.block_weights, self.block_biases, strict=True):
            states = states + silu(torch.baddbmm(bias[heads], states, weight[heads]))
        return torch.bmm(states, self.projection[heads])
