"""The operator's switch follows a file at run time, and no state of the file does harm."""

import itertools
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.scheduling.adapters import DRAFT_MODEL, Listening, end, output, request
from vllm_spec_plugin.config import load_config, parse_config
from vllm_spec_plugin.metrics.by_method import CountersByMethod
from vllm_spec_plugin.scheduling import operator_switch
from vllm_spec_plugin.scheduling.adapter import DraftLengthAdapter
from vllm_spec_plugin.scheduling.operator_switch import OperatorSwitch

FILE = "proposer: {method: ngram}\ndraft_length: {tokens: 8}\n"
OFF, CAPPED = "switch: {spec: off}\n", "switch: {spec_tokens: 2}\n"


class Served:
    """A file with a switch that follows it, an hour after each change."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.now, self.num_written = path, 0.0, 0
        self.write(text)
        self.switch = OperatorSwitch(load_config(path), str(path))

    def write(self, text: str, age: float = 3600.0) -> None:
        self.path.write_text(text)
        # Files that are written within a tick of the clock must differ.
        self.num_written += 1
        modified = time.time() - age - 1e-3 * self.num_written
        os.utime(self.path, (modified, modified))

    def look(self) -> int:
        self.now += 1.0
        self.switch.look(self.now)
        return self.switch.max_tokens


@pytest.fixture
def served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Served:
    caplog.set_level(logging.INFO, "vllm.vllm_spec_plugin")
    return Served(tmp_path / "plugin.yaml", FILE)


def test_each_change_is_followed_and_logged_once(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    assert served.look() == 8
    assert not caplog.messages
    for text, most, setting in (
        (OFF, 0, "off"),
        (CAPPED, 2, "on, with up to 2 draft tokens"),
        ("switch: {spec: off, spec_tokens: 3}\n", 0, "off"),
        ("", 8, "on, with up to 8 draft tokens"),
    ):
        caplog.clear()
        served.write(FILE + text)
        assert [served.look(), served.look()] == [most, most]
        assert caplog.messages == [f"{served.path}: drafting is {setting} from now on, by the section switch"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{FILE}switch: {{spec: of}}", "switch.spec: got the text 'of'; allowed: on, off; did you mean off?"),
        (f"{FILE}switch: {{spec_tokens: 9}}", "switch.spec_tokens: got 9, but draft_length.tokens is 8; allowed"),
        (f"{FILE}switch: {{spec: false, spec_tokens: 0}}", "2 mistakes: switch.spec: got false; allowed: on, off"),
        (f"{FILE}switch: [", "not YAML: line 3"),
        ("", "it is empty; allowed: a YAML mapping"),
        ("proposer: {method: ngrm}", "proposer.method: got the text 'ngrm'; allowed"),
        (None, "no such file; allowed: a readable YAML file"),
    ],
)
def test_a_damaged_file_changes_nothing_and_is_reported_once(
    served: Served, caplog: pytest.LogCaptureFixture, text: str | None, said: str
) -> None:
    served.write(FILE + CAPPED)
    assert served.look() == 2
    caplog.clear()
    if text is None:
        served.path.unlink()
    else:
        served.write(text)
    assert [served.look() for _ in range(3)] == [2, 2, 2]
    [message] = caplog.messages
    before = "changed file not used, the setting stays (drafting is on, with up to 2 draft tokens): "
    assert message.startswith(f"{before}{served.path}: {said}")
    assert len(message.splitlines()) == 1
    served.write(FILE + OFF)
    assert served.look() == 0


def test_an_error_of_another_distribution_changes_nothing(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> None:
        raise RuntimeError("of a validator")

    monkeypatch.setattr(operator_switch, "load_config", fail)
    served.write(FILE + OFF)
    assert served.look() == 8
    assert caplog.messages[-1].endswith("of a validator")


def test_other_keys_take_a_restart_and_are_noted_once(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """A smaller maximum is no limit by the switch, and a larger one lets the switch allow no more than is served."""
    other = "proposer: {method: ngram, min_order: 3}\ndraft_length: {tokens: TOKENS}\nrequests: {spec_tokens: 1}\n"
    noted = f"{served.path}: changed, but used after a restart only: KEYS"
    keys = "draft_length.tokens, proposer.min_order, requests.spec_tokens"
    served.write(other.replace("TOKENS", "4"))
    assert served.look() == 8
    assert caplog.messages == [noted.replace("KEYS", keys)]
    served.write(other.replace("TOKENS", "32") + "switch: {spec_tokens: 16}\n")
    assert served.look() == 8
    served.write(other.replace("TOKENS", "32") + OFF)
    assert served.look() == 0
    assert len(caplog.messages) == 2
    served.write(FILE + OFF)
    served.look()
    served.write(f"{FILE}stream_granularity: token\n{OFF}")
    assert served.look() == 0
    assert caplog.messages[2:] == [noted.replace("KEYS", "stream_granularity")]


def test_the_file_is_looked_at_once_a_second_and_read_when_it_has_settled(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, found = itertools.count(), served.path.stat()
    monkeypatch.setattr(served.switch, "_path", SimpleNamespace(stat=lambda: (next(looks), found)[1]))
    for step in range(2000):
        served.switch.look(10 + step / 1000)
    assert next(looks) == 2
    monkeypatch.undo()
    served.now = 20.0
    served.write(FILE + OFF, age=0.5)
    assert served.look() == 8
    later = time.time() + 1
    monkeypatch.setattr(operator_switch, "time", SimpleNamespace(time=lambda: later))
    assert served.look() == 0
    # The clock of a file server may be ahead.
    served.write(FILE, age=-600.0)
    assert served.look() == 8


def test_a_change_between_start_and_first_step_is_followed(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    config = load_config(served.path)
    served.write(FILE + OFF)
    assert OperatorSwitch(config, str(served.path)).max_tokens == 0
    assert OperatorSwitch(load_config(served.path), str(served.path)).max_tokens == 0
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("source", ["/dev/null", "spec.yaml", "", "a\0b"])
def test_what_is_no_file_is_not_followed(source: str, caplog: pytest.LogCaptureFixture) -> None:
    switch = OperatorSwitch(parse_config({"proposer": {"method": "ngram"}}, source), source)
    assert not switch.look(5.0)
    assert switch.max_tokens == 4
    assert not caplog.messages


def test_off_the_policy_is_not_asked_and_on_it_goes_on(served: Served) -> None:
    control, counters = Listening(), CountersByMethod()
    config = parse_config(DRAFT_MODEL | {"draft_length": {"tokens": 8}}, "spec.yaml")
    adapter = DraftLengthAdapter(control, config, 64, counters, None, served.switch)
    one = request("a")
    adapter.add(one)
    begun = iter(range(10, 100))

    def plan() -> Mapping[str, object]:
        step = output({"a": 1})
        plans = dict(adapter.plan(step, [one], lambda: 100, float(next(begun))).draft_plans)
        end(adapter, one)
        return plans

    assert plan() == {"a": ((0, 8),)}
    served.write(FILE + OFF)
    assert plan() == {}
    assert counters.of("draft_model").max_draft_tokens == [0]
    assert counters.of("draft_model").switched_off == 1
    assert adapter.requests.room(one) == 0
    assert not adapter.requests.may_draft("a", 0)
    num_plans = control.num_plans
    adapter.add(request("b"))
    assert plan() == {}
    assert control.num_plans == num_plans
    served.write(FILE + CAPPED)
    assert plan() == {"a": ((0, 2),)}
    assert adapter.requests.may_draft("b", 0)
    served.write(FILE)
    assert plan() == {"a": ((0, 8),)}
    # Its step times are measured meanwhile, too.
    assert len(control.steps) == 5
