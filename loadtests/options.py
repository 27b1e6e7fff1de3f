"""Options of the load test beside Locust's own; each can come from the environment."""

from argparse import Namespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from loadtests.stream.goodput import Slo

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser

# What a report tells of the options: how the test was made, and no secrets.
_TOLD = (
    "locustfile",
    "num_users",
    "run_time",
    "spawn_rate",
    "max_tokens",
    "temperature",
    "prompts",
    "think",
    "rate",
    "seed",
)


def add_options(parser: "LocustArgumentParser") -> None:
    """Adds them to Locust's parser."""

    def add(name: str, kind: type, default: object, text: str) -> None:
        variable = f"LOADTEST_{name.upper().replace('-', '_')}"
        parser.add_argument(f"--{name}", type=kind, default=default, env_var=variable, help=text)

    add("model", str, "", "Name of the model; the first that the server names if not given")
    # From the environment rather: others on the machine can read a command line.
    parser.add_argument(
        "--api-key", default="", env_var="OPENAI_API_KEY", include_in_web_ui=False, help="Key, if the server wants one"
    )
    add("max-tokens", int, 64, "Most output tokens of a request whose prompt does not say")
    add("temperature", float, 0.7, "Of a request whose prompt does not say")
    add("prompts", str, "", "A JSONL file of prompts that all users ask, in place of their scenario's own")
    add("think", float, 0.0, "Mean seconds that a user thinks before asking again, exponentially distributed")
    add("rate", float, 1.0, "Requests per second of the user class OpenLoop")
    add("patience", float, 120.0, "Most seconds to wait for a connection, or for the next piece of an answer")
    add("slo-ttft", float, None, "Seconds: goodput counts requests whose time to first token is no longer")
    add("slo-tpot", float, None, "Seconds: and whose time per output token is no longer")
    add("slo-e2e", float, None, "Seconds: and which take no longer in all")
    add("seed", int, 0, "Of the choice of prompts, of thinking and of arrivals")
    add("report", str, "", "Write all figures here, as JSON")
    add("report-html", str, "", "Write a page with tables and plots here, one HTML file")


def slo_of(options: Namespace) -> Slo | None:
    """The limits that were given; None if none was.

    Raises:
        ValueError: one of them is not positive.
    """
    limits = (options.slo_ttft, options.slo_tpot, options.slo_e2e)
    return None if all(limit is None for limit in limits) else Slo(*limits)


def told(options: Namespace) -> dict[str, Any]:
    """The options that a report tells."""
    return {name: getattr(options, name) for name in _TOLD}


def without_credentials(url: str) -> str:
    """A URL without what some carry before the host."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
