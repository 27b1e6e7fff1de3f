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

    def extract_reasoning(self, model_output: str, request: object) -> tuple[str | None, str | None]:
        """As vLLM's, which looks for the name of a token in the text: there its Ġ is a space."""
        start, end = (token.replace("Ġ", " ") for token in (self.start_token, self.end_token))
        reasoned, is_over, content = model_output.removeprefix(start).partition(end)
        return reasoned or None, (content or None) if is_over else None


@ReasoningParserManager.register_module("are")  # type: ignore[arg-type]
class AreParser(YieldParser):
    """Reasoning goes from " are" to " of"."""

    @property
    def start_token(self) -> str:
        return "Ġare"

    @property
    def end_token(self) -> str:
        return "Ġof"
