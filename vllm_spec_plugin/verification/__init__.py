"""Verification: accepts draft tokens so that the output distribution is the target's."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_spec_plugin.v1.verification.sampler import SpecRejectionSampler

__all__ = ["SpecRejectionSampler"]


def __getattr__(name: str) -> Any:
    # The adapter imports vLLM; the other modules do not.
    if name == "SpecRejectionSampler":
        from vllm_spec_plugin.v1.verification.sampler import SpecRejectionSampler

        return SpecRejectionSampler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
