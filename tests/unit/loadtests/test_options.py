"""What a report tells of the options."""

from argparse import Namespace

import pytest

from loadtests.options import told, without_credentials


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("https://me:secret@example.com:8443/base", "https://example.com:8443/base"),
        ("http://to@ken@[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_credentials_in_a_url_are_not_shown(url: str, shown: str) -> None:
    assert without_credentials(url) == shown


def test_secrets_are_not_told() -> None:
    names = (
        "locustfile",
        "num_users",
        "run_time",
        "spawn_rate",
        "max_tokens",
        "temperature",
        "prompts",
        "think",
        "rate",
    )
    options = Namespace(**dict.fromkeys(names, 1), seed=2, api_key="secret", host="http://me:secret@localhost")
    assert told(options) == dict.fromkeys(names, 1) | {"seed": 2}
