"""Texts that the bundled models know how to go on with."""

from collections.abc import Iterable

from loadtests.scenarios.prompts import FOLDER, read_prompts


def texts(scenarios: Iterable[str]) -> list[str]:
    """The prompts of some scenarios, without their other wishes.

    Args:
        scenarios: names of files; chats among them do not count.
    """
    prompts = [prompt for name in scenarios for prompt in read_prompts(FOLDER / f"{name}.jsonl")]
    return [prompt.prompt for prompt in prompts if prompt.prompt is not None]
