"""Which model runner and scheduling vLLM chooses for a configuration, and why."""

from typing import TYPE_CHECKING, NamedTuple

from vllm_spec_plugin.compat.installed import installed_version, is_cpu_build

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import VllmConfig

_NO_TRITON = "V2 needs Triton, which is not available here"
_FROM_TEXT = "the plugin drafts after the last step's tokens"
_IN_STEP = "vLLM's V1 runner has no asynchronous scheduling for custom proposers, such as the plugin's"
_PYTHON_ONLY = "checks of requests, predicted outputs and the plugin's metrics are in vLLM's Python frontend only"
_OTHERWISE = "or serve without a plugin.yaml"


class EngineChoice(NamedTuple):
    """Build, runner and scheduling that vLLM chose for a configuration.

    Attributes:
        vllm: version and build of vLLM.
        runner: vLLM's model runner, and the reason for it.
        scheduling: whether steps are scheduled asynchronously, and the reason for it.
    """

    vllm: str
    runner: str
    scheduling: str

    def __str__(self) -> str:
        """Joins the choices in one line."""
        return f"vLLM {self.vllm}; {self.runner}; {self.scheduling}"


def asked_for_v2() -> bool | None:
    """Whether the environment asks for vLLM's V2 runner; None leaves the choice to vLLM."""
    from vllm import envs

    asked: bool | None = envs.VLLM_USE_V2_MODEL_RUNNER
    return asked


def takes_v2() -> bool:
    """Whether vLLM serves on its V2 runner what that supports."""
    asked = asked_for_v2()
    return has_triton() if asked is None else asked


def has_triton() -> bool:
    """Whether Triton, of which V2's kernels are, runs here."""
    from vllm.triton_utils import HAS_TRITON

    return bool(HAS_TRITON)


def engine_of(vllm_config: "VllmConfig", *, drafts_in_scheduler: bool = False, why_v1: str = "") -> EngineChoice:
    """Returns what vLLM has chosen for a configuration that it has created.

    Args:
        vllm_config: vLLM's `VllmConfig`.
        drafts_in_scheduler: whether the plugin drafts in the scheduler's process.
        why_v1: the plugin's reason for the V1 runner, if it has one.
    """
    from vllm.platforms import current_platform

    speculative = vllm_config.speculative_config
    is_custom = speculative is not None and speculative.method == "custom_class"
    is_v2, is_async = vllm_config.use_v2_model_runner, vllm_config.scheduler_config.async_scheduling
    forced = asked_for_v2()
    unsupported = [] if is_custom else vllm_config._get_v2_model_runner_unsupported_features()
    if is_v2:
        why_runner = ["VLLM_USE_V2_MODEL_RUNNER=1" if forced else "vLLM's default"]
    else:
        why_runner = [
            *([why_v1] if why_v1 else []),
            *(["VLLM_USE_V2_MODEL_RUNNER=0"] if forced is False else []),
            *([f"V2 does not support {', '.join(unsupported)}"] if unsupported else []),
            *([] if has_triton() else [_NO_TRITON]),
        ]
    if is_async:
        why_scheduling = ["vLLM's default"]
    else:
        why_scheduling = [
            *([_FROM_TEXT] if drafts_in_scheduler else []),
            *([_IN_STEP] if is_custom and not is_v2 else []),
            *(["vLLM's CPU platform has no other"] if current_platform.is_cpu() else []),
        ] or ["--no-async-scheduling, or an option that vLLM does not combine with asynchronous scheduling"]
    return EngineChoice(
        shown_version(),
        f"V{2 if is_v2 else 1} runner: {', and '.join(why_runner)}",
        f"{'asynchronous' if is_async else 'synchronous'} scheduling: {', and '.join(why_scheduling)}",
    )


def shown_version() -> str:
    """Returns version and build of the installed vLLM."""
    found = installed_version()
    return f"{found} ({'CPU' if is_cpu_build(found) else 'GPU'} build)"


def conflict(
    async_scheduling: bool | None, *, is_api_server: bool, in_workers: bool, drafts_in_scheduler: bool, needs_v2: bool
) -> str:
    """Returns what asks for a runner, scheduling or frontend that the plugin cannot have; empty if nothing does.

    vLLM itself raises an exception for the first two, and is silent about the last.

    Args:
        async_scheduling: value of `--async-scheduling`; None if it was not given.
        is_api_server: whether the engine is for vLLM's OpenAI server.
        in_workers: whether the plugin's proposers draft in the workers.
        drafts_in_scheduler: whether it drafts in the scheduler's process, from texts.
        needs_v2: whether it drafts on the V2 runner, for which the environment asks.
    """
    from vllm import envs

    version = installed_version()
    if needs_v2 and not has_triton():
        return f"VLLM_USE_V2_MODEL_RUNNER=1: {_NO_TRITON} (vLLM {version}); allowed: unset it"
    if async_scheduling and (in_workers or drafts_in_scheduler):
        why = _FROM_TEXT if drafts_in_scheduler else _IN_STEP
        return f"--async-scheduling: {why} (vLLM {version}); allowed: leave it out, {_OTHERWISE}"
    if is_api_server and envs.VLLM_USE_RUST_FRONTEND:
        return f"VLLM_USE_RUST_FRONTEND=1: {_PYTHON_ONLY} (vLLM {version}); allowed: unset it, {_OTHERWISE}"
    return ""
