"""Reasoning parsers for the bundled target, which does not reason: all before a word counts as that."""

from vllm.reasoning import ReasoningParserManager
from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser

NAME = "yield"


@ReasoningParserManager.register_module(NAME)  # type: ignore[arg-type]
class YieldParser(BaseThinkingReasoningParser):
    """Tokens of the vocabulary that no prompt has."""

    @property
    def start_token(self) -> str:
        return "Ġglobal"

    @property
    def end_token(self) -> str:
        return "Ġyield"


@ReasoningParserManager.register_module("are")  # type: ignore[arg-type]
class AreParser(YieldParser):
    """Reasoning goes from " are" to " of"."""

    @property
    def start_token(self) -> str:
        return "Ġare"

    @property
    def end_token(self) -> str:
        return "Ġof"
