"""Penalties with the context grown by drafts, against a loop."""

import torch

from tests.unit.random_cases import random_cases
from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.v1.verification.penalties import add_counts_, apply_penalties_, token_counts

VOCAB = 7


@random_cases(50, 300)
def test_each_row_is_penalised_for_prompt_output_and_the_drafts_before_it(rng, device):
    sizes = rng.integers(0, (7, 7, 4), size=(rng.integers(1, 5), 3))
    requests = [tuple(rng.integers(0, VOCAB, size).tolist() for size in row) for row in sizes]
    rows = Rows.of([len(drafts) for _, _, drafts in requests], device)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(len(rows.request), VOCAB, generator=generator)
    longest = max(max(len(prompt), len(output)) for prompt, output, _ in requests)

    def pad(lists):
        padded = [x + [VOCAB] * (longest - len(x)) for x in lists]
        return torch.tensor(padded, dtype=torch.int64, device=device).reshape(len(lists), longest)

    drafts = torch.tensor([d for _, _, ds in requests for d in ds], dtype=torch.int64, device=device)
    output = token_counts(pad([o for _, o, _ in requests]), VOCAB)
    counts = add_counts_(output[rows.request], rows.context(drafts))
    in_prompt = token_counts(pad([p for p, _, _ in requests]), VOCAB) > 0
    repetition, frequency, presence = 1.3, 0.4, 0.7
    size = len(rows.request)
    expected = logits.clone()
    for r in range(size):
        prompt, output, drafted = requests[int(rows.request[r])]
        context = output + drafted[: int(rows.offset[r])]
        for v in range(VOCAB):
            if v in prompt or v in context:
                expected[r, v] = expected[r, v] / repetition if expected[r, v] > 0 else expected[r, v] * repetition
            expected[r, v] -= frequency * context.count(v) + presence * (v in context)
    full = torch.full((size,), 1.0, device=device)
    actual = apply_penalties_(
        logits.to(device), in_prompt[rows.request], counts, full * repetition, full * frequency, full * presence
    )
    torch.testing.assert_close(actual.cpu(), expected)


def test_placeholders_are_not_counted(device):
    context = Rows.of([2], device).context(torch.tensor([-1, 3], device=device))
    counts = add_counts_(torch.zeros(3, VOCAB, dtype=torch.int32, device=device), context)
    assert counts.sum(1).tolist() == [0, 0, 1]
