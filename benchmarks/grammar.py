"""Finds the kind of each token of a structured output: drafted from its grammar, or the model's own; without an engine.

python -m benchmarks.grammar docs/benchmarks/grammar.json     then `make figures` draws docs/benchmarks/grammar.svg
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.base import RequestView
from vllm_spec_plugin.proposers.grammar.proposer import GrammarProposer
from vllm_spec_plugin.proposers.grammar.state import Kind
from vllm_spec_tools.report.provenance import provenance

# Draft length of configs/grammar.yaml.
NUM_TOKENS = 16
OWN, END = "own", "<end>"


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


SCHEMA = _object(
    ticket_number={"type": "integer"},
    priority={"enum": ["priority_low", "priority_normal", "priority_high"]},
    customer=_object(name={"type": "string"}, is_registered={"type": "boolean"}),
    lines={"type": "array", "items": _object(part={"type": "string"}, is_missing={"type": "boolean"}), "minItems": 1},
)
OUTPUT = {
    "ticket_number": 41,
    "priority": "priority_normal",
    "customer": {"name": "Ines Lopes", "is_registered": True},
    "lines": [{"part": "front wheel", "is_missing": False}, {"part": "bell", "is_missing": True}],
}


class Compiled:
    """A grammar as vLLM's scheduler has it, of xgrammar and with whitespace as vLLM allows it."""

    def __init__(self, schema: dict[str, Any], model: Path) -> None:
        """Compiles a JSON schema for a model's tokenizer."""
        from vllm.tokenizers import get_tokenizer
        from vllm.v1.structured_output.backend_types import StructuredOutputOptions
        from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

        from vllm_spec_plugin.compat.grammars import Grammars

        settings: Any = SimpleNamespace(
            structured_outputs_config=SimpleNamespace(disable_any_whitespace=False),
            model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="llama")),
            speculative_config=SimpleNamespace(num_speculative_tokens=NUM_TOKENS),
        )
        tokenizer = get_tokenizer(str(model))
        backend = XgrammarBackend(settings, tokenizer, len(tokenizer))
        self._grammar = backend.compile_grammar(StructuredOutputOptions.JSON, json.dumps(schema))
        manager: Any = SimpleNamespace(
            backend=backend,
            tokenizer=tokenizer,
            _get_constraint_bounds=lambda *_: SimpleNamespace(constraint_start=False),
        )
        self._grammars, self.end = Grammars(manager), tokenizer.eos_token_id
        self._request: Any = SimpleNamespace(
            request_id="",
            structured_output_request=SimpleNamespace(grammar=self._grammar),
            sampling_params=SimpleNamespace(eos_token_id=self.end, all_stop_token_ids={self.end}),
        )
        self.tokenizer = self._grammars.tokenizer
        self._proposer = GrammarProposer(self.tokenizer, len(tokenizer), lambda: 0.0)

    def draft(self, output: list[int]) -> list[tuple[int, str]]:
        """Returns the draft tokens after an output, with their kinds."""
        state = self._grammars.of(self._request)
        view = RequestView("", np.array(output, np.int32), NUM_TOKENS, np.zeros(NUM_TOKENS), grammar=state)
        [draft] = self._proposer.propose([view])
        return [(token, Kind(kind).name.lower()) for token, kind in zip(draft.token_ids, draft.kinds, strict=True)]

    def take(self, tokens: list[int]) -> None:
        """Takes tokens of the output."""
        assert self._grammar.accept_tokens("", tokens), "the output follows the schema"


def kinds_of(schema: dict[str, Any], output: Any, model: Path) -> Iterator[tuple[str, str]]:
    """Yields text and kind of each token of an output, as steps of speculative decoding accept them.

    Args:
        output: what the model writes, as a value of JSON.
    """
    compiled = Compiled(schema, model)
    tokens = [*compiled.tokenizer.encode(json.dumps(output)), compiled.end]
    done = 0
    while done < len(tokens):
        # The first token comes with the prompt.
        draft = compiled.draft(tokens[:done]) if done else []
        num_accepted = 0
        for drafted, token in zip(draft, tokens[done:], strict=False):
            if drafted[0] != token:
                break
            num_accepted += 1
        kinds = [*(kind for _, kind in draft[:num_accepted]), OWN]
        new = tokens[done : done + len(kinds)]
        for token, kind in zip(new, kinds, strict=False):
            yield END if token == compiled.end else compiled.tokenizer.decode([token]), kind
        compiled.take(new)
        done += len(new)


if __name__ == "__main__":
    target = model_path("target")
    found = [{"text": text, "kind": kind} for text, kind in kinds_of(SCHEMA, OUTPUT, target)]
    models, program = {"target": str(target.relative_to(Path.cwd()))}, "python -m benchmarks.grammar"
    origin = provenance(sys.argv[1:], 0, [json.dumps(OUTPUT)], models, program, ["xgrammar"])
    Path(sys.argv[1]).write_text(
        json.dumps({"longest_draft": NUM_TOKENS, "tokens": found, "provenance": origin}, indent=1) + "\n"
    )
