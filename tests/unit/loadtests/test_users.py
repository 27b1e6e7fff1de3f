"""One request of a user. Without Locust, whose import replaces this process's threads."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("requests")
ROOT = Path(__file__).parents[3]
SCRIPT = """
import locust  # first: it patches ssl
from types import SimpleNamespace
from vllm_spec_tools.prompts import GivenPrompt as Prompt
from loadtests.samples import Samples
from loadtests.stream.timing import ErrorKind, StreamRecord
from loadtests.users import send

fired, seen, samples = [], [], Samples()
options = SimpleNamespace(max_tokens=5, temperature=0.0, api_key="sk-12", body='{"seed": 3}', model="llama")
request = SimpleNamespace(fire=lambda **fields: fired.append(fields))
environment = SimpleNamespace(parsed_options=options, events=SimpleNamespace(request=request))

def ask(path, body):
    seen.append((body, samples.sent))
    if len(seen) == 2:
        raise SystemExit
    return StreamRecord(0.0, 0.1, error=ErrorKind.HTTP_4XX, message="wrong key sk-12: get another")

client = SimpleNamespace(ask=ask)
send(environment, samples, client, "chat", Prompt(prompt="a"))
assert seen == [({"model": "llama", "max_tokens": 5, "temperature": 0.0, "seed": 3, "prompt": "a"}, 1)], seen
assert [one.message for one in samples.measures["chat"]] == ["wrong key ***: get another"]
assert str(fired[0]["exception"]) == "http_4xx: wrong key ***: get another"
try:
    send(environment, samples, client, "chat", Prompt(prompt="a"))
except SystemExit:
    pass
assert (samples.sent, len(samples.measures["chat"])) == (2, 1)
"""


def test_a_request_is_counted_when_it_is_sent_and_the_key_is_shown_to_nobody() -> None:
    pytest.importorskip("msgpack")
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
