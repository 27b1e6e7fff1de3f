"""The base of every section of a plugin.yaml."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

# Bounds of a draft tree: its depth in tokens, and the children per node.
MAX_DEPTH = 16
MAX_SIBLINGS = 64


class Section(BaseModel):
    """Refuses unknown keys, type conversions, and changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class ChosenBy:
    """Marks a section whose model is chosen by one of its keys.

    Unlike pydantic's own discriminator it also takes a union of one model, and may have a default.
    """

    key: str
    default: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Builds a union of the models in `source`, discriminated by the literal value of `key`."""
        models = get_args(source) or (source,)
        choices = {
            get_args(model.model_fields[self.key].annotation)[0]: handler.generate_schema(model) for model in models
        }
        union = core_schema.tagged_union_schema(choices, discriminator=self.key)
        return union if self.default is None else core_schema.no_info_wrap_validator_function(self._choose, union)

    def _choose(self, value: Any, validate: Callable[[Any], BaseModel]) -> BaseModel:
        if not isinstance(value, Mapping) or self.key in value:
            return validate(value)
        chosen = validate({**value, self.key: self.default})
        chosen.model_fields_set.discard(self.key)
        return chosen


def conflicts(problems: list[tuple[str, str]]) -> None:
    """Refuses a combination of keys; for use in a model validator.

    Args:
        problems: per mistake, the key to change and the message; may be empty. A message names other keys of the
            section as `proposer.KEY`.

    Raises:
        PydanticCustomError: there are problems.
    """
    if problems:
        text = "; ".join(f"{key}: {text}" for key, text in problems)
        raise PydanticCustomError("conflict", text, {"problems": problems})


def numbers_by_depth(value: object, allowed: range, at: str = "") -> tuple[int, ...]:
    """Validates a list of one whole number per depth of a draft.

    Args:
        value: the value given.
        allowed: range of allowed numbers.
        at: index of the list in its key's value, for messages, such as `[1]`.

    Raises:
        PydanticCustomError: not such a list, or too long; names the element.
    """
    numbers = f"from {allowed[0]} to {allowed[-1]}"
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_DEPTH:
        raise _wrong_element(value, at, f"a list of 1 to {MAX_DEPTH} whole numbers {numbers}")
    for i, number in enumerate(value):
        if type(number) is not int or number not in allowed:
            raise _wrong_element(number, f"{at}[{i}]", f"a whole number {numbers}")
    return tuple(value)


def _wrong_element(value: object, at: str, allowed: str) -> PydanticCustomError:
    return PydanticCustomError("wrong_element", "wrong", {"value": value, "at": at, "allowed": allowed})
