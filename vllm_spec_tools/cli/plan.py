"""`vllm-spec plan`: the former name of `vllm-spec bench --recommend`."""

import inspect
from typing import Annotated, Any

import typer

from vllm_spec_tools.cli.bench import bench

# Former names of options, by those of `bench`.
_FORMER = {"levels": "concurrency", "request_tokens": "output_tokens", "prompt_temperature": "temperature"}
_OTHERS = {
    "arm", "recommend", "proposer", "workload", "switching_levels", "stream_tokens", "min_total_tokens",
    "phase_tokens", "hard_temperature",
}  # fmt: skip
_NOTE = (
    "note: vllm-spec plan is now vllm-spec bench --recommend, with --levels for --concurrency, --request-tokens for "
    "--output-tokens, --prompt-temperature for --temperature and --arm vllm:JSON for --vllm; plan ends with 0.4"
)


def plan(**values: Any) -> None:
    """Former name of `vllm-spec bench --recommend`, for one release."""
    typer.echo(_NOTE, err=True)
    arm = [f"vllm:{config}" for config in values.pop("vllm") or ()]
    bench(recommend=True, arm=arm, **_DEFAULTS, **{new: values.pop(old) for new, old in _FORMER.items()}, **values)


_PARAMETERS = inspect.signature(bench).parameters
_DEFAULTS = {name: _PARAMETERS[name].default for name in _OTHERS - {"arm", "recommend"}}
_VLLM = Annotated[list[str] | None, typer.Option(metavar="JSON", help="One of vLLM's own drafters to consider.")]
plan.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        *(one.replace(name=_FORMER.get(name, name)) for name, one in _PARAMETERS.items() if name not in _OTHERS),
        inspect.Parameter("vllm", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_VLLM),
    ]
)
