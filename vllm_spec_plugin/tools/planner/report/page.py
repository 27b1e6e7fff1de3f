"""The report as a page. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_spec_plugin.tools.bench.noise_gate import DISTURBING, disturbance, disturbance_text
from vllm_spec_plugin.tools.planner.report import expected, measured, verified
from vllm_spec_plugin.tools.planner.report.section import Section
from vllm_spec_plugin.tools.planner.results import Results
from vllm_spec_plugin.tools.planner.words import streams
from vllm_spec_plugin.tools.report.table import markdown_table

_AGAIN = "ask again when the machine is quiet."
_MORE = "longer ones may be better still (--tokens; Medusa has a head per token)."


def sections(results: Results) -> Iterator[Section]:
    """The seven answers, the prediction, its verification, and what would change the answer."""
    yield measured.target_step(results)
    yield measured.verification(results)
    yield measured.drafting(results)
    yield measured.acceptance(results)
    yield measured.memory(results)
    yield expected.effect(results)
    yield verified.time_per_request(results)
    yield expected.predictions(results)
    if results.verified:
        yield verified.verification(results)
    yield expected.limits(results)


def remarks(results: Results) -> Iterator[str]:
    """What else is to be known besides the answer."""
    yield from results.verdict.reasons
    found = disturbance(results.others)
    if found is not None and found[0] > DISTURBING:
        yield f"Other processes used {found[0]:.2f} cores meanwhile, so all of this is uncertain: {_AGAIN}"
    if len(results.levels) > 1:
        levels = ", ".join(map(streams, results.levels))
        yield f"The best is the one with the highest mean speedup over {levels}, each of which counts alike."
    if results.choice.tokens == results.choice.candidate.lengths[-1] and not results.choice.candidate.is_tree:
        yield f"The longest draft considered, {results.choice.tokens} tokens, is the best at some level: {_MORE}"
    yield from results.remarks


def to_markdown(results: Results, provenance: Mapping[str, Any], picture: str | None) -> str:
    """The report, the answer first.

    Args:
        results: of the plan.
        provenance: what `report.provenance.provenance` gives.
        picture: the PNG's address from the page; None is none.
    """
    machine = provenance["machine"]
    parts = [
        "# Speculation plan",
        f"**{results.verdict.answer}**",
        *remarks(results),
        f"```\nvllm-spec {' '.join(provenance['arguments'])}\n```",
        f"{machine['cores']} cores of {machine['cpu']}, vLLM {provenance['versions']['vllm']}, "
        f"{provenance['date'][:10]}.",
    ]
    if picture is not None:
        parts.append(f"![Expected and measured speedup, and what verification takes]({picture})")
    for section in sections(results):
        parts += [f"## {section.title}", markdown_table([section.header, *section.rows])]
        if section.note:
            parts.append(section.note)
    if (text := disturbance_text(results.others)) is not None:
        parts.append(text)
    return "\n\n".join(parts) + "\n"
