"""The target: read, never changed."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vllm_spec_plugin.schema.errors import UserError, show_reason, show_text
from vllm_spec_tools.engines.model_source import model_source


class Backbone:
    """A frozen causal language model.

    Attributes:
        context: most tokens that it reads; None is not known.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.requires_grad_(False).eval()
        self.tokenizer = tokenizer
        self.tokenizer.model_max_length = sys.maxsize  # texts are cut into rows after they were encoded
        self.output_layer = model.get_output_embeddings()
        self.vocab_size, self.hidden_size = self.output_layer.weight.shape
        self.context: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.device: torch.device = model.device

    @torch.no_grad()
    def read(self, tokens: torch.Tensor, layers: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor]:
        """Reads texts: hidden states, and the logits of every position.

        Args:
            tokens: [rows, length] int64.
            layers: ids of layers, below the number of layers; 0 is the embedding.

        Returns:
            States and logits, [rows, length, vocab_size] of the model's dtype. States are those after `layers`, side by
            side, [rows, length, len(layers) * hidden_size] float32; without layers they are what the output layer is
            given, whatever the model does before or after it, [rows, length, hidden_size] of the model's dtype. That is
            also what vLLM hands to a proposer.
        """
        given: list[torch.Tensor] = []
        hook = self.output_layer.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
        with hook:
            kind = {"use_cache": False, "output_hidden_states": bool(layers)}
            output = self.model(input_ids=tokens.to(self.device), **kind)
        states = torch.cat([output.hidden_states[layer].float() for layer in layers], -1) if layers else given[0]
        return states, output.logits

    @property
    def embedding(self) -> torch.Tensor:
        """[vocab_size, hidden_size], the weights of the input embedding."""
        weight: torch.Tensor = self.model.get_input_embeddings().weight
        return weight

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of a text, with the special tokens that the tokenizer puts before texts or without."""
        return list(self.tokenizer.encode(text, add_special_tokens=special))

    def render(self, messages: list[dict[str, Any]], add_generation_prompt: bool) -> str:
        """A chat as the model reads it."""
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add_generation_prompt)
        return str(text)


def load_backbone(name: str) -> Backbone:
    """Loads a target and its tokenizer: on a GPU in the model's own dtype if there is one, else in float32.

    Raises:
        UserError: there is no such model, or none that can be trained for.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    shown, allowed = f"--model '{show_text(name, 200)}'", "a causal language model's folder or its name on the hub"
    name = model_source("--model", name, "target")
    local = Path(name).is_dir()
    logging.disable_progress_bar()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        dtype = "auto" if device == "cuda" else torch.float32
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, local_files_only=local).to(device)
        tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
    except Exception as error:  # whatever a model from anywhere makes of the library that reads it
        raise UserError(f"{shown}: cannot be loaded: {show_reason(error)}; allowed: {allowed}") from None
    if getattr(model.get_output_embeddings(), "weight", None) is None:
        raise UserError(f"{shown}: has no output layer that heads could start from; allowed: {allowed}")
    return Backbone(model, tokenizer)
