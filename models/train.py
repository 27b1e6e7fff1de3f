"""Trains the bundled family: tokenizer, target, then a draft distilled from the target."""

import json
import platform
import time
from dataclasses import asdict
from pathlib import Path

import torch
import transformers
from rich.console import Console
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from models.agreement import measure_agreement
from models.family import DRAFT, MAX_LENGTH, TARGET, VOCAB_SIZE, Shape
from models.schedule import Batches, run
from models.tokenizer import END_OF_TEXT, save_tokenizer, train_tokenizer
from vllm_spec_tools.demo.corpus import load_corpus

SEED = 20261121
TARGET_STEPS, TARGET_LEARNING_RATE = 2500, 3e-3
DRAFT_STEPS, DRAFT_LEARNING_RATE = 3200, 4e-3


def encode(tokenizer: PreTrainedTokenizerFast, texts: tuple[str, ...]) -> torch.Tensor:
    """Joins all texts in one stream, an end-of-text token before and between them: [num_tokens] int64."""
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    stream = [end]
    for text in texts:
        stream += tokenizer.encode(text, add_special_tokens=False)
        stream.append(end)
    return torch.tensor(stream)


def new_model(shape: Shape) -> LlamaForCausalLM:
    """A freshly initialised float32 model of that shape."""
    return LlamaForCausalLM(shape.config()).float().train()


def train_target(tokens: torch.Tensor, steps: int) -> LlamaForCausalLM:
    """Next-token training on the token stream `tokens`, [num_tokens] int64."""
    torch.manual_seed(SEED)
    model, batches = new_model(TARGET), Batches(tokens, SEED)

    def loss_of(step: int) -> torch.Tensor:
        batch = batches.draw(step, steps)
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    run("target", model, steps, TARGET_LEARNING_RATE, loss_of)
    return model.eval()


def project_embeddings(target: LlamaForCausalLM, draft: LlamaForCausalLM) -> None:
    """Starts the draft's embeddings as the target's, cut to their leading principal directions."""
    weights = target.get_input_embeddings().weight.detach()
    _, _, directions = torch.linalg.svd(weights, full_matrices=False)
    small = weights @ directions[: draft.config.hidden_size].T
    with torch.no_grad():
        draft.get_input_embeddings().weight.copy_(small)


def distill_draft(target: LlamaForCausalLM, tokens: torch.Tensor, steps: int) -> LlamaForCausalLM:
    """Trains a draft to give the target's distributions on the token stream `tokens`.

    The loss goes from KL(p || q), which teaches fast, to the total variation distance
    1 - sum min(p, q), which is the rejection rate itself.
    """
    torch.manual_seed(SEED + 1)
    draft, batches = new_model(DRAFT), Batches(tokens, SEED + 1)
    project_embeddings(target, draft)

    def loss_of(step: int) -> torch.Tensor:
        inputs = batches.draw(step, steps)[:, :-1]
        with torch.no_grad():
            p_log = target(input_ids=inputs, use_cache=False).logits.log_softmax(-1)
        q_log = draft(input_ids=inputs, use_cache=False).logits.log_softmax(-1)
        p = p_log.exp()
        divergence = (p * (p_log - q_log)).sum(-1).mean()
        rejection = 0.5 * (p - q_log.exp()).abs().sum(-1).mean()
        share = min(1.0, max(0.0, 2 * step / steps - 0.5))  # all KL for a quarter, all rejection for the last
        return (1 - share) * divergence + share * 3 * rejection

    run("draft", draft, steps, DRAFT_LEARNING_RATE, loss_of)
    return draft.eval()


def save_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Writes bfloat16 safetensors, config and tokenizer."""
    model.to(torch.bfloat16).save_pretrained(folder)
    save_tokenizer(tokenizer, folder)


def train(out: Path, target_steps: int = TARGET_STEPS, draft_steps: int = DRAFT_STEPS) -> None:
    """Trains everything from the standard library's sources and writes it under `out`.

    Args:
        out: gets the folders `target` and `draft`, and `training.json` with figures and provenance.
        target_steps: optimiser steps of the target.
        draft_steps: optimiser steps of the draft.
    """
    console = Console()
    start = time.time()
    corpus = load_corpus()
    tokenizer = train_tokenizer(corpus.train, VOCAB_SIZE, MAX_LENGTH)
    training, held_out = encode(tokenizer, corpus.train), encode(tokenizer, corpus.held_out)
    console.print(
        f"{len(corpus.train)} files, {len(training):,} tokens to train on; "
        f"{len(corpus.held_out)} files, {len(held_out):,} tokens held out"
    )
    target = train_target(training, target_steps)
    save_model(target, tokenizer, out / "target")
    # The draft learns the target that is shipped: its weights after rounding to bfloat16.
    target = LlamaForCausalLM.from_pretrained(out / "target", dtype=torch.float32).eval()
    draft = distill_draft(target, training, draft_steps)
    save_model(draft, tokenizer, out / "draft")
    draft = LlamaForCausalLM.from_pretrained(out / "draft", dtype=torch.float32).eval()
    agreement = measure_agreement(target, draft, held_out)
    record = {
        "agreement on held-out files at T=1": asdict(agreement),
        "weights per token": {"target": TARGET.weights_per_token(), "draft": DRAFT.weights_per_token()},
        "minutes": round((time.time() - start) / 60, 1),
        "seed": SEED,
        "steps": {"target": target_steps, "draft": draft_steps},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "held-out files": list(corpus.held_out_names),
    }
    (out / "training.json").write_text(json.dumps(record, indent=2) + "\n")
    console.print(
        f"held-out loss {agreement.target_loss:.3f} nats/token, "
        f"acceptance rate {agreement.acceptance_rate:.3f}, greedy agreement {agreement.greedy:.3f}"
    )
