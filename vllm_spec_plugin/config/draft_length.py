"""The section `draft_length`: how many tokens are drafted."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator

from vllm_spec_plugin.schema.section import Section

MAX_TOKENS = 64


class DraftLength(Section):
    """The key that all policies have.

    Attributes:
        uses_step_times: whether the policy wants steps of several sizes timed at start-up (`probed`).
    """

    uses_step_times: ClassVar[bool] = False

    tokens: int = Field(default=4, ge=1, le=MAX_TOKENS, description="Maximum draft tokens per request and step.")

    def resolved(self, folder: Path) -> Self:
        """Returns the section with paths relative to `folder` made absolute."""
        return self


class FixedDraftLength(DraftLength):
    """Drafts the same number of tokens in every step."""

    policy: Literal["fixed"] = Field(description="The policy that chooses draft lengths.")


class OptimalDraftLength(DraftLength):
    """Chooses each request's draft length, 0 included, by measured acceptance and measured time."""

    uses_step_times: ClassVar[bool] = True

    policy: Literal["optimal"] = Field(default="optimal", description="The policy that chooses draft lengths.")
    half_life: float = Field(
        default=64.0,
        ge=8,
        le=65_536,
        description="Half-life of a request's acceptance history, in output tokens.",
    )
    memory: str = Field(
        default="on",
        description="Where the server keeps what it learned, as numbers, for the next start: on (in VLLM_CACHE_ROOT), "
        "off (nothing is kept or read), or a folder.",
    )

    @field_validator("memory", mode="before")
    @classmethod
    def _is_a_choice_or_a_folder(cls, value: object) -> object:
        if not isinstance(value, str) or not value:
            raise ValueError("allowed: on, off, or a folder")
        return value

    def resolved(self, folder: Path) -> Self:
        """See `DraftLength`."""
        if self.memory in ("on", "off"):
            return self
        return self.model_copy(update={"memory": str((folder / Path(self.memory).expanduser()).resolve())})


class RandomDraftLength(DraftLength):
    """Draws each request's draft length in each step, from 0 to the maximum; for tests and `vllm-spec certify`."""

    policy: Literal["random"] = Field(description="The policy that chooses draft lengths.")
    seed: int = Field(default=0, ge=0, description="Seed of the random draft lengths.")


# A new policy is a model above and its name here.
DraftLengthConfig = FixedDraftLength | OptimalDraftLength | RandomDraftLength
