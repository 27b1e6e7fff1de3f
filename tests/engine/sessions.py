"""Running streaming sessions: requests whose prompt goes on after each answer."""

from collections.abc import Sequence
from typing import Any

from tests.engine.jobs import Session


def run(llm: Any, sessions: Sequence[Session]) -> list[list[list[int]]]:
    """Runs sessions side by side, past vLLM's frontend: only its asynchronous one takes sessions.

    Args:
        llm: vLLM's `LLM`, with its engine core in this process.
        sessions: what is sent.

    Returns:
        Per session and turn the output tokens.
    """
    from vllm import SamplingParams

    core, processor = llm.llm_engine.engine_core.engine_core, llm.llm_engine.input_processor
    left = {f"session-{i}": list(session.turns) for i, session in enumerate(sessions)}
    params = {name: SamplingParams(**session.params) for name, session in zip(left, sessions, strict=True)}
    said: dict[str, list[list[int]]] = {name: [] for name in left}

    def send(name: str) -> None:
        said[name].append([])
        prompt = {"prompt_token_ids": list(left[name].pop(0))}
        request = processor.process_inputs(name, prompt, params[name], ("generate",), resumable=True)
        core.add_request(*core.preprocess_add_request(request))

    for name in left:
        send(name)
    talking = set(left)
    while talking:
        answers, is_executed = core.step_fn()
        core.post_step(is_executed)
        for output in (output for answer in answers.values() for output in answer.outputs):
            said[output.request_id][-1] += output.new_token_ids
            if output.finish_reason is not None:
                if left[output.request_id]:
                    send(output.request_id)
                else:
                    talking.remove(output.request_id)
    core.abort_requests(list(left))
    return list(said.values())
