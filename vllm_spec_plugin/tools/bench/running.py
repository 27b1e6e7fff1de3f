"""Starts the engines of arms."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.arms import PlannedArm, engines
from vllm_spec_plugin.tools.bench.engine_args import arm_environment, engine_arguments

# Of the device's memory, for all engines together; the keys and values of a benchmark need a fraction of it.
_MEMORY = 0.8
_MOST_MEMORY = 0.5


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
    """Starts the engines of arms one after the other; yields each arm's by the arm's name, and ends them.

    Arms of equal plans have one engine; engines share the device's memory.

    Args:
        arms: by name.
        target: a folder's absolute path or a hub name.
        seed: of the engines.
        enforce_eager: do not compile.
        folder: for their files.
        console: prints which one starts.
        options: further arguments of `vllm.LLM`.

    Raises:
        UserError: one did not start.
    """
    groups = engines(arms)
    memory, environment = min(_MEMORY / len(groups), _MOST_MEMORY), arm_environment(target)
    running: dict[str, Arm] = {}
    with contextlib.ExitStack() as stack:
        for number, (name, members) in enumerate(groups.items(), 1):
            what = f"starting arm {number}/{len(groups)}: {escape(name)} (about a minute)"
            if not console.is_terminal:
                console.print(what, soft_wrap=True, highlight=False)
            arguments = engine_arguments(arms[members[0]].plan, target, seed, enforce_eager, memory) | options
            with console.status(what):
                engine = stack.enter_context(Arm(name, arguments, environment, folder / f"arm{number}"))
            running |= dict.fromkeys(members, engine)
        yield running


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
