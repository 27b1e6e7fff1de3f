"""Starts the engines of arms."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape

from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.arms import PlannedArm, engines
from vllm_spec_plugin.tools.bench.engine_args import arm_environment, engine_arguments

# Of the device's memory, for all engines together; the keys and values of a benchmark need a fraction of it.
_MEMORY = 0.8
_MOST_MEMORY = 0.5

_Arm = TypeVar("_Arm", bound=Arm)


@contextlib.contextmanager
def started_arms(
    arguments: Mapping[str, Mapping[str, Any]],
    environment: Mapping[str, str],
    folder: Path,
    console: Console,
    kind: type[_Arm],
) -> Iterator[dict[str, _Arm]]:
    """Starts arms one after the other; they end with the context.

    Args:
        arguments: of each engine, by name, see `arm.py`.
        environment: of each one's process.
        folder: for their files.
        console: prints which one starts.
        kind: class of the arms.

    Raises:
        UserError: one did not start.
    """
    with contextlib.ExitStack() as stack:
        arms: dict[str, _Arm] = {}
        for number, (name, values) in enumerate(arguments.items(), 1):
            what = f"starting arm {number}/{len(arguments)}: {escape(name)} (about a minute)"
            if not console.is_terminal:
                console.print(what, soft_wrap=True, highlight=False)
            with console.status(what):
                arms[name] = kind(name, values, environment, folder / f"arm{number}")
                stack.enter_context(arms[name])
        yield arms


@contextlib.contextmanager
def running_engines(
    arms: Mapping[str, PlannedArm],
    target: str,
    seed: int,
    enforce_eager: bool,
    folder: Path,
    console: Console,
    **options: Any,
) -> Iterator[dict[str, Arm]]:
    """Starts the engines of arms, which share the device's memory; yields each arm's by the arm's name.

    `target` is a folder's absolute path or a hub name, `options` are further arguments of `vllm.LLM`, the others are
    those of `started_arms` and of `engine_arguments`. Some arms may have the same engine.
    """
    groups = engines(arms)
    memory = min(_MEMORY / len(groups), _MOST_MEMORY)
    arguments = {
        name: engine_arguments(arms[members[0]].plan, target, seed, enforce_eager, memory) | options
        for name, members in groups.items()
    }
    with started_arms(arguments, arm_environment(target), folder, console, Arm) as started:
        yield {member: started[name] for name, members in groups.items() for member in members}


def describe(arms: Mapping[str, PlannedArm], engines: Mapping[str, Arm]) -> dict[str, dict[str, Any]]:
    """What each arm is, for the record: its configuration, and what its engine chose by itself."""
    return {
        name: {
            "speculation": arm.plan.settings or arm.plan.speculative_config,
            "spec_tokens": arm.spec_tokens,
            "engine": engines[name].facts(),
        }
        for name, arm in arms.items()
    }
