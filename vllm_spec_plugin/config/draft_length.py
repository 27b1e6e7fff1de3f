"""The section `draft_length`: how many tokens are drafted."""

from typing import Literal

from pydantic import Field

from vllm_spec_plugin.schema.section import Section

MAX_TOKENS = 64


class DraftLength(Section):
    """What every policy has."""

    tokens: int = Field(default=4, ge=1, le=MAX_TOKENS, description="Most tokens drafted per request and step.")


class FixedDraftLength(DraftLength):
    """The same number of draft tokens in every step."""

    policy: Literal["fixed"] = Field(description="How many tokens to draft in a step is decided like this.")


class HeuristicDraftLength(DraftLength):
    """Longer after drafts that were wholly accepted, shorter after others, request by request."""

    policy: Literal["heuristic"] = Field(description="How many tokens to draft in a step is decided like this.")


class OptimalDraftLength(DraftLength):
    """What pays most by measured acceptance and measured time, request by request, none included."""

    policy: Literal["optimal"] = Field(description="How many tokens to draft in a step is decided like this.")
    half_life: float = Field(
        default=64.0,
        ge=8,
        le=65_536,
        description="Output tokens of a request after which what was seen of its drafts counts half.",
    )
    explore: float = Field(
        default=0.01,
        ge=0,
        le=0.2,
        description="Share of the time that may go into trying what does not look best; 0 is never.",
        json_schema_extra={"zero": "never"},
    )


# A new policy is a model above and its name here.
DraftLengthConfig = FixedDraftLength | HeuristicDraftLength | OptimalDraftLength
