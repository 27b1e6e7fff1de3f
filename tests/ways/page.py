"""The part of docs/support.md with the rules by way to draft."""

from collections.abc import Mapping

from tests.ways.table import HOLDS, NOT_NEEDED, REFUSED, RULES, SHOWN, alerts, answer_of_alert
from vllm_spec_plugin.gate.rules import RULES as GATE
from vllm_spec_plugin.gate.ways import Way


def lines() -> list[str]:
    """Returns the table of rules by way to draft, with a note per reason."""
    notes: dict[str, int] = {}

    def cell(answer: str) -> str:
        if answer == HOLDS or answer.startswith(SHOWN):
            return "yes"
        kind = "refused" if answer.startswith(REFUSED) else "no need"
        text = answer.removeprefix(REFUSED).removeprefix(NOT_NEEDED)
        return f"{kind} ({notes.setdefault(text, len(notes) + 1)})".removeprefix("no need ")

    def row(title: str, answers: Mapping[Way, str]) -> str:
        return f"| {title} | {' | '.join(cell(answers[way]) for way in Way)} |"

    rows = [row(rule.statement, rule.answers) for rule in RULES]
    rows += [row(f"alert `{name}`", {way: answer_of_alert(name, way) for way in Way}) for name in alerts()]
    for scope in dict.fromkeys(rule.scope for rule in GATE):
        subjects = dict.fromkeys(f"`{rule.subject}`" for rule in GATE if rule.scope is scope)
        refused = dict.fromkeys(scope.ways, f"{REFUSED}see [settings](#settings)")
        elsewhere = dict.fromkeys(Way, f"{NOT_NEEDED}{scope.elsewhere}")
        rows.append(row(f"{scope.name}: {', '.join(subjects)}", elsewhere | refused))
    everywhere = f"{' | '.join(['yes'] * len(Way))} |"
    return [
        "## Rules by way to draft",
        "",
        "**Every rule holds for every way to draft, is refused, or is not needed there, for the reason given.**",
        'A test walks all pairs (`pytest tests/unit/ways`): it runs each "yes" without a model, or names the test',
        "that shows it. A number alone: not needed.",
        "",
        *(f"{number}. {way}" for number, way in enumerate(Way, 1)),
        "",
        "Every way: "
        + "; ".join(one.split(" | ")[0].removeprefix("| ") for one in rows if one.endswith(everywhere))
        + ".",
        "",
        f"| rule | {' | '.join(str(number) for number in range(1, len(Way) + 1))} |",
        f"|---|{'---|' * len(Way)}",
        *(one for one in rows if not one.endswith(everywhere)),
        "",
        "Reasons:",
        "",
        *(f"{number}. {text}" for text, number in notes.items()),
    ]
