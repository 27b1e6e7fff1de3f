"""The parts of a step are methods of an engine, each without those inside it."""

from types import SimpleNamespace
from typing import Any

from vllm_spec_plugin.tools.bench.host.parts import (
    FORWARD,
    FRONTEND,
    INPUTS,
    MESSAGES,
    PARTS,
    SCHEDULE,
    timed_steps,
)


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Engine:
    """An engine without requests whose step takes: frontend 1, messages 2, schedule 4, inputs 8, forward 16 + 32."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        runner: Any = SimpleNamespace(
            execute_model=lambda: (self._take(8), runner._model_forward(), runner.model.compute_logits()),
            _model_forward=lambda: self._take(16),
            model=SimpleNamespace(compute_logits=lambda: self._take(32)),
        )
        self.runner = runner
        scheduler = SimpleNamespace(schedule=lambda: self._take(4))
        executor = SimpleNamespace(driver_worker=SimpleNamespace(worker=SimpleNamespace(model_runner=runner)))
        core = SimpleNamespace(scheduler=scheduler, model_executor=executor)
        self.engine_core: Any = SimpleNamespace(
            engine_core=core,
            get_output=lambda: (self._take(2), core.scheduler.schedule(), runner.execute_model()),
        )

    def _take(self, seconds: float) -> float:
        self._clock.now += seconds
        return self._clock.now

    def step(self) -> None:
        """One step."""
        self._take(1)
        self.engine_core.get_output()


def test_a_part_is_without_those_inside_it_and_methods_are_put_back() -> None:
    clock = Clock()
    engine = Engine(clock)
    before = dict(vars(engine.runner))
    with timed_steps(engine, clock, PARTS) as stopwatch:
        engine.step()
        assert vars(engine.runner) != before
    expected = {FRONTEND: 1, MESSAGES: 2, SCHEDULE: 4, INPUTS: 8, FORWARD: 48}
    assert stopwatch.seconds == expected
    assert vars(engine.runner) == before
    assert "step" not in vars(engine)
    engine.step()
    assert stopwatch.seconds == expected


def test_vllms_own_drafter_is_asked_for_its_model() -> None:
    clock = Clock()
    engine = Engine(clock)

    class Model:
        def __call__(self) -> None:
            clock.now += 64

        def compute_logits(self) -> None:
            clock.now += 128

    drafter: Any = SimpleNamespace(model=Model(), propose=lambda: (drafter.model(), drafter.model.compute_logits()))
    engine.runner.drafter = drafter
    engine.runner.execute_model = drafter.propose
    with timed_steps(engine, clock, PARTS) as stopwatch:
        engine.step()
    assert stopwatch.seconds["draft model"] == 192
    assert isinstance(drafter.model, Model)
