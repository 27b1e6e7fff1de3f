"""Workers whose drafter, one of vLLM's or heads, rests when the scheduler says so, and catches up before it drafts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat.catch_up import MissingTokens, catching_up_on_v1, catching_up_on_v2, note_missing
from vllm_spec_plugin.compat.resting import has_no_speculation, resting_on_v1, resting_on_v2, sampling_on_v1
from vllm_spec_plugin.compat.runner import wrap_drafting
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.messages import plan_of

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.cuda import Worker
else:
    Worker = object


class RestsDrafter(Worker):
    """Mixin before a vLLM worker.

    Attributes:
        rests_drafter: tells the scheduler that this worker knows rests.
    """

    rests_drafter = True

    def execute_model(self, scheduler_output: Any) -> Any:
        """Runs a step; on V1 as without speculation where its drafter rests."""
        runner: Any = self.model_runner
        if not self.use_v2_model_runner and has_no_speculation(runner, scheduler_output):
            # Until the step's tokens are sampled.
            runner.speculative_config = None
        return super().execute_model(scheduler_output)

    def sample_tokens(self, grammar_output: Any) -> Any:
        """Samples, and lets the next step have speculation."""
        try:
            return super().sample_tokens(grammar_output)
        finally:
            self.model_runner.speculative_config = self.vllm_config.speculative_config

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Loads the model, and puts itself before the drafter's calls."""
        super().load_model(*args, **kwargs)
        if config_in(self.vllm_config.additional_config).proposers[-1].is_token_only:
            return
        wrap_drafting(self.model_runner, self._resting, is_v2=self.use_v2_model_runner)

    def _resting(self, propose: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the runner's `propose` with rests, and for a draft model with catching up."""
        runner: Any = self.model_runner
        speculative = self.vllm_config.speculative_config
        is_draft_model = speculative is not None and speculative.method == "draft_model"
        if self.use_v2_model_runner:
            if is_draft_model:
                note_missing(runner, _missing)
                propose = catching_up_on_v2(runner.speculator, propose)
            return resting_on_v2(runner.req_states.draft_tokens, propose)
        if is_draft_model:
            propose = catching_up_on_v1(runner, _missing, propose)
        runner._sample = sampling_on_v1(runner, runner._sample)
        return resting_on_v1(runner, propose)


def _missing(output: object) -> MissingTokens:
    return plan_of(output).catch_up
