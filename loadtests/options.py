"""Command-line options of the load tests beside Locust's own; each can be set in the environment."""

import functools
import json
import math
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from loadtests.client import CHAT, COMPLETIONS
from loadtests.summary import Slo
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.prompts import GivenPrompt, read_prompts
from vllm_spec_tools.report import Files, check_files
from vllm_spec_tools.report.provenance import provenance

if TYPE_CHECKING:
    from locust.argument_parser import LocustArgumentParser


# Options that a report shows: how the test was made, without secrets.
_SHOWN = (
    *("locustfile", "num_users", "run_time", "spawn_rate", "stop_timeout", "processes", "load_profile", "rate"),
    *("max_tokens", "temperature", "body", "prompts", "think", "seed"),
)
_FORMATS = {"json": "JSON", "markdown": "Markdown", "html": "HTML"}


def add_options(parser: "LocustArgumentParser") -> None:
    """Adds the options to Locust's parser."""

    def add(name: str, kind: type, default: object, text: str, **more: Any) -> None:
        variable = f"LOADTEST_{name.upper().replace('-', '_')}"
        parser.add_argument(f"--{name}", type=kind, default=default, env_var=variable, help=text, **more)

    add("model", str, "", "Name of the model. Default: the first one that the server lists")
    # Preferably from the environment: other users of the machine can read a command line.
    parser.add_argument(
        "--api-key",
        default="",
        env_var="OPENAI_API_KEY",
        include_in_web_ui=False,
        help="API key, if the server needs one",
    )
    add("max-tokens", int, 64, "Maximum output tokens of a request whose prompt sets none")
    add("temperature", float, 0.7, "Sampling temperature of a request whose prompt sets none")
    add("body", str, "", 'JSON object with further fields of each request, such as {"vllm_xargs": {"spec": "off"}}')
    add("prompts", str, "", "JSONL file of prompts that replaces those of all scenarios")
    add("think", float, 0.0, "Mean think time of a user between two requests, in seconds, exponentially distributed")
    add("load-profile", str, "", "Number of users over time, up to -u within -t", choices=["", *PROFILES])
    add("rate", float, None, "Open loop: requests per second in total, as a Poisson process, instead of waiting users")
    add("patience", float, 120.0, "Maximum seconds to wait for a connection, or for the next piece of a response")
    add("slo-ttft", float, None, "Goodput: longest time to first token, in seconds")
    add("slo-tpot", float, None, "Goodput: longest time per output token, in seconds")
    add("slo-e2e", float, None, "Goodput: longest end-to-end time, in seconds")
    add("seed", int, 0, "Seed of prompts, think times and arrivals")
    for key, name in _FORMATS.items():
        # `--report` alone is JSON; Locust itself has `--json`, `--csv` and `--html`.
        flags = ["--report-json", "--report"] if key == "json" else [f"--report-{key}"]
        variable = f"LOADTEST_REPORT_{key.upper()}"
        parser.add_argument(*flags, default="", env_var=variable, help=f"Write the report as {name} to this file")


def check_options(options: Namespace) -> None:
    """Checks what Locust's parser cannot.

    Raises:
        UserError: an option has an invalid value; str() names it and what is allowed.
    """
    slo_of(options)
    extra_fields(options)
    if options.rate is not None and not options.rate > 0:
        raise UserError(f"--rate is {options.rate}: it must be a positive number of requests per second")
    if options.rate is not None and options.load_profile:
        raise UserError("--rate and --load-profile exclude each other: a rate does not depend on the number of users")
    check_files(files_of(options), "--report-{}")


def slo_of(options: Namespace) -> Slo | None:
    """The SLO; None if no limit is set.

    Raises:
        UserError: a limit is not positive.
    """
    limits = (options.slo_ttft, options.slo_tpot, options.slo_e2e)
    return None if all(limit is None for limit in limits) else Slo(*limits)


def extra_fields(options: Namespace) -> dict[str, Any]:
    """Fields of `--body`.

    Raises:
        UserError: it is not a JSON object.
    """
    try:
        fields = json.loads(options.body or "{}")
    except ValueError as error:
        raise UserError(f"--body is not JSON ({error}): {options.body}") from None
    if not isinstance(fields, dict):
        raise UserError(f"--body must be a JSON object: {options.body}")
    return fields


def report_options(options: Namespace) -> dict[str, Any]:
    """The options that a report shows."""
    return {name: getattr(options, name, None) for name in _SHOWN}


def files_of(options: Namespace) -> Files:
    """The files that the report goes to."""
    given = {key: getattr(options, f"report_{key}") for key in _FORMATS}
    return Files(**{key: Path(path) if path else None for key, path in given.items()})


def origin_of(options: Namespace, host: str) -> dict[str, Any]:
    """Provenance of the report, with a command line that repeats the test but for secrets and files."""
    arguments = ["--headless", "--host", without_credentials(host)]
    for name, value in report_options(options).items():
        if value not in (None, "", False):
            option = "users" if name == "num_users" else name.replace("_", "-")
            arguments += [f"--{option}", str(value)]
    prompts = [
        one.model_dump_json() for path in sorted(FOLDER.glob("*")) for one in prompts_of(path.stem, options.prompts)
    ]
    return provenance(arguments, options.seed, prompts, {"model": options.model}, "locust", ("locust",))


def without_credentials(url: str) -> str:
    """A URL without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


# Number of users by the most users and the elapsed share of the time, from 0 to below 1.
LoadProfile = Callable[[int, float], int]


def ramp(most: int, elapsed: float) -> int:
    """Rises evenly from one user to the most within the first half, then stays."""
    return min(1 + math.floor(most * elapsed * 2), most)


def steps(most: int, elapsed: float) -> int:
    """Doubles from one user to the most, in steps of equal time."""
    levels = tuple(dict.fromkeys((*(1 << power for power in range(most.bit_length())), most)))
    return levels[math.floor(elapsed * len(levels))]


def spike(most: int, elapsed: float) -> int:
    """Holds a sixteenth of the users; the third quarter of the time has the most."""
    return most if 0.5 <= elapsed < 0.75 else max(round(most / 16), 1)


PROFILES: Mapping[str, LoadProfile] = {"ramp": ramp, "steps": steps, "spike": spike}
FOLDER = Path(__file__).parent / "prompts"
_KEYS = {"prompt", "messages", "max_tokens", "temperature"}


@functools.cache
def prompts_of(scenario: str, given: str = "") -> tuple[GivenPrompt, ...]:
    """Prompts of a scenario, read once per process.

    Args:
        given: file that replaces the scenario's own; empty for none.

    Raises:
        UserError: the file cannot be read; see `read_prompts`.
    """
    return read_prompts([Path(given) if given else FOLDER / f"{scenario}.jsonl"])


def request_of(prompt: GivenPrompt, model: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """URL path and body of a prompt's request."""
    own = prompt.model_dump(include=_KEYS, exclude_none=True)
    if prompt.prediction is not None:
        own["prediction"] = {"type": "content", "content": prompt.prediction}
    if prompt.output_schema is not None:
        own["structured_outputs"] = {"json": prompt.output_schema}
    return COMPLETIONS if prompt.messages is None else CHAT, {"model": model} | dict(options) | own
