"""Models that are made in no time: random ones, and one that knows a language by heart."""

from pathlib import Path
from typing import Any, Self

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from vllm_spec_tools.training.backbone import Backbone, load_backbone
from vllm_spec_tools.training.rows import Write

VOCABULARY = 30
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def tokenizer() -> PreTrainedTokenizerFast:
    """A token per letter; 0 ends a text, 1 is anything else."""
    ids = {"<end>": 0, "<other>": 1} | {letter: 2 + place for place, letter in enumerate(LETTERS)}
    inner = Tokenizer(models.WordLevel(ids, unk_token="<other>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", unk_token="<other>", pad_token="<end>")


def config(**changes: Any) -> LlamaConfig:
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        "initializer_range": 0.5,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    return LlamaConfig(**(sizes | changes))


def random_backbone() -> Backbone:
    torch.manual_seed(0)
    return Backbone(LlamaForCausalLM(config()), tokenizer())


def saved_model(folder: Path, **changes: Any) -> str:
    """A random model's folder."""
    torch.manual_seed(0)
    LlamaForCausalLM(config(**changes)).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)


def alphabet_backbone(num_layers: int = 1) -> Backbone:
    """Says with near certainty the letter that comes after the last one; after z comes a.

    A letter's embedding is a vector of its own, the layers add nothing, and the output layer knows the next letter by
    the one before.
    """
    size = 32
    model = LlamaForCausalLM(config(hidden_size=size, tie_word_embeddings=False, num_hidden_layers=num_layers))
    with torch.no_grad():
        for weight in model.model.layers.parameters():
            weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(VOCABULARY, size))
        model.lm_head.weight.zero_()
        for place in range(26):
            model.lm_head.weight[2 + (place + 1) % 26, 2 + place] = 3.0
    return Backbone(model, tokenizer())


def writing(backbone: Backbone) -> Write:
    """Continues prompts as `TargetEngine.write` does, without vLLM."""

    def write(prompts: list[list[int]], max_tokens: int, temperature: float, seed: int) -> list[list[int]]:
        torch.manual_seed(seed)
        return [_continue(prompt, max_tokens, temperature) for prompt in prompts]

    def _continue(prompt: list[int], max_tokens: int, temperature: float) -> list[int]:
        new: list[int] = []
        while len(new) < max_tokens and 0 not in new:
            logits = backbone.read(torch.tensor([prompt + new]))[1][0, -1]
            share = (logits / temperature).softmax(-1) if temperature else logits
            new.append(int(share.multinomial(1) if temperature else share.argmax()))
        return new

    return write


class WritingEngine:
    """`TargetEngine` of a tiny model."""

    def __init__(self, model: str, max_length: int) -> None:
        self.write = writing(load_backbone(model))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def alphabet(length: int, start: int = 0) -> torch.Tensor:
    """Token ids of abcd..., [length] int64."""
    return 2 + (start + torch.arange(length)) % 26
