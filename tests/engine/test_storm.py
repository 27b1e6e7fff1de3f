"""A storm of requests, aborts and nonsense with next to no KV cache: none is lost, no greedy output changes."""

import os
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import MEDUSA_TREE, TWO_RANKS, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_token_ids, greedy_job
from tests.engine.jobs import Job
from tests.engine.storm import Outcome, Storm
from tests.fixed_length import STOCK_DRAFT_MODEL, fixed_length, native
from tests.sizes import examples, is_full

pytestmark = pytest.mark.engine

NUM_REQUESTS, NUM_TOKENS = examples(200, 2000), 32
# A request takes up to 4 blocks of 32 tokens; the pool keeps one of its own.
TIGHTEST: dict[str, Any] = {"num_blocks": 12, "max_model_len": 128, "max_num_batched_tokens": 64, "max_num_seqs": 16}
# Fixed draft lengths: drafts are plentiful however many requests there are.
CONFIGS = {"cascade": fixed_length("cascade", 5)}
two_cores = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two cores")
LAYOUTS = [pytest.param((), id="one_rank")]
if is_full():
    CONFIGS |= {"medusa_tree": MEDUSA_TREE, "native": native(STOCK_DRAFT_MODEL, 5)}
    LAYOUTS.append(pytest.param(TWO_RANKS, id="two_ranks", marks=[pytest.mark.whole_machine, two_cores]))


def assert_as_without_drafts(
    reference: Reference, prompts: Sequence[Tokens], outcomes: Sequence[Outcome], plain: Sequence[list[int]]
) -> None:
    """Finished requests have all their tokens, and every greedy output begins as `plain`, which is by prompt."""
    assert all(len(outcome.token_ids) == outcome.num_tokens for outcome in outcomes if outcome.end == "finished")
    said = [outcome for outcome in outcomes if outcome.token_ids]
    assert_same_token_ids(
        reference,
        [prompts[outcome.prompt] for outcome in said],
        [list(outcome.token_ids) for outcome in said],
        [plain[outcome.prompt][: len(outcome.token_ids)] for outcome in said],
    )


@pytest.mark.parametrize("options", LAYOUTS)
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_no_request_is_lost_and_no_greedy_output_changed_in_a_storm(
    config: str, options: tuple[tuple[str, Any], ...], arms: Arms, reference: Reference
) -> None:
    """A third is aborted and a tenth refused; outputs of the others, and what the aborted ones had, are as without."""
    prompts = [prompt for prompt in texts.sources(reference, 64, 90) if len(prompt) > 1]
    plain = arms.run(Engine(), greedy_job(prompts, NUM_TOKENS)).tokens()
    storm = Storm(prompts, NUM_REQUESTS, NUM_TOKENS)
    result = arms.run(Engine(config=config, options=options, **TIGHTEST), Job([], storm=storm))
    outcomes: list[Outcome] = result.notes["storm"]
    ends = [outcome.end for outcome in outcomes]
    assert len(ends) == NUM_REQUESTS
    assert set(ends) == {"finished", "aborted", "refused"}
    assert min(ends.count("aborted") / 0.2, ends.count("refused") / 0.05) > NUM_REQUESTS
    assert_as_without_drafts(reference, prompts, outcomes, plain)
    assert min(result.accepted, result.rejected) > NUM_REQUESTS
    assert result.preemptions > NUM_REQUESTS / 25
