"""The traffic by workload."""

from vllm_spec_plugin.tools.planner.traffic import Prompt, workloads_of


def test_prompts_are_gathered_by_workload_and_temperature() -> None:
    prompts = [
        Prompt("a", "edit", 0.0, 64),
        Prompt("b", "chat", 0.7, 64),
        Prompt("c", "chat", 1.0, 64),
        Prompt("d", "edit", 0.0, 48),
    ]
    edit, warm, hot = workloads_of(prompts)
    assert (edit.name, edit.share, edit.num_tokens, edit.texts) == ("edit", 0.5, 56, ("a", "d"))
    assert (warm.name, warm.temperature) == ("chat, T = 0.7", 0.7)
    assert (hot.name, hot.share) == ("chat, T = 1", 0.25)


def test_predictions_stay_with_their_prompts() -> None:
    (edit, chat) = workloads_of(
        [Prompt("a", "edit", 0.0, 9, "p"), Prompt("b", "edit", 0.0, 9), Prompt("c", "chat", 0.0, 9)]
    )
    assert (edit.predictions, chat.predictions) == (("p", ""), ())
