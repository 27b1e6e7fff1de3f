"""Starts the engines of arms: side by side, or one at a time."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from vllm_spec_plugin.compat.engine_args import device_memory
from vllm_spec_tools.bench.arm import Arm
from vllm_spec_tools.bench.arms import PlannedArm, engines
from vllm_spec_tools.bench.engine_args import arm_environment, engine_arguments
from vllm_spec_tools.memory import check_memory, need_of
from vllm_spec_tools.serving import runs_on_cpu


class Engines:
    """Engines of arms, each ready when it is asked for.

    Attributes:
        facts: what each arm's engine chose by itself, by arm; of those that have started.
    """

    def __init__(
        self,
        arms: Mapping[str, PlannedArm],
        arguments: Mapping[str, Mapping[str, Any]],
        environment: Mapping[str, str],
        folder: Path,
        console: Console,
        *,
        one_at_a_time: bool,
    ) -> None:
        """Starts all engines, one after the other, or none yet if they run one at a time.

        Args:
            arms: by name.
            arguments: of each arm's engine.
            one_at_a_time: whether each ends before the next one starts; else arms of equal plans share one.

        Raises:
            UserError: one did not start.
        """
        self.facts: dict[str, dict[str, Any]] = {}
        self._arguments, self._environment, self._folder = arguments, environment, folder
        self._stack = contextlib.ExitStack()
        self._running: dict[str, Arm] = {}
        self._current: tuple[str, int | None] | None = None
        self._num_started, self._one_at_a_time = 0, one_at_a_time
        if not one_at_a_time:
            with self._stack:
                self._start_all(arms, console)
                self._stack = self._stack.pop_all()

    def _start_all(self, arms: Mapping[str, PlannedArm], console: Console) -> None:
        groups = engines(arms)
        for number, (name, members) in enumerate(groups.items(), 1):
            what = f"starting arm {number}/{len(groups)}: {escape(name)} (about a minute)"
            if not console.is_terminal:
                console.print(what, soft_wrap=True, highlight=False)
            with console.status(what):
                self._running |= dict.fromkeys(members, self._start(name, members))

    def of(self, name: str, number: int | None = None) -> Arm:
        """Returns an arm's engine; one at a time, one that has started for this round, after the one before ended.

        Args:
            number: of the round; None is outside of rounds.

        Raises:
            UserError: it did not start.
        """
        if self._one_at_a_time and self._current != (name, number):
            self.stop()
            self._running = {name: self._start(name, [name])}
            self._current = name, number
        return self._running[name]

    def stop(self) -> None:
        """Ends all engines."""
        self._stack.close()
        self._current = None

    def _start(self, name: str, members: list[str]) -> Arm:
        self._num_started += 1
        folder = self._folder / f"arm{self._num_started}"
        arm = self._stack.enter_context(Arm(name, self._arguments[members[0]], self._environment, folder))
        self.facts |= dict.fromkeys(members, arm.facts())
        return arm


@contextlib.contextmanager
def running_engines(
    arms: Mapping[str, PlannedArm],
    target: str,
    seed: int,
    enforce_eager: bool,
    folder: Path,
    console: Console,
    options: Mapping[str, Any] | None = None,
    *,
    one_at_a_time: bool = False,
) -> Iterator[Engines]:
    """Yields the engines of arms, which end with the context.

    Args:
        arms: by name.
        target: a folder's absolute path or a hub name.
        enforce_eager: do not compile.
        one_at_a_time: start each when it is asked for; else all before the context is entered.

    Raises:
        UserError: they do not fit into memory, or one did not start.
    """
    own = engine_arguments(next(iter(arms.values())).plan, target, seed, enforce_eager, options=options)
    needs = {
        name: need_of(target, arms[members[0]].plan.draft_models, own, runs_on_cpu())
        for name, members in engines(arms).items()
    }
    share = check_memory(needs, options or {}, device_memory(), one_at_a_time=one_at_a_time)
    arguments = {
        name: engine_arguments(arm.plan, target, seed, enforce_eager, share, options) for name, arm in arms.items()
    }
    environment = arm_environment(target, options)
    running = Engines(arms, arguments, environment, folder, console, one_at_a_time=one_at_a_time)
    try:
        yield running
    finally:
        running.stop()


def describe(arms: Mapping[str, PlannedArm], engines: Engines) -> dict[str, dict[str, Any]]:
    """What each arm is, for the record: its configuration, and what its engine chose by itself."""
    return {
        name: {
            "speculation": arm.plan.settings or arm.plan.speculative_config,
            "spec_tokens": arm.spec_tokens,
            "engine": engines.facts[name],
        }
        for name, arm in arms.items()
    }
