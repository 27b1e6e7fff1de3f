"""Keys of earlier versions, which have no effect: accepted with a note for one release."""

from collections.abc import Mapping
from typing import Any

from vllm_spec_plugin.proposers.registry import CASCADE
from vllm_spec_plugin.schema.errors import Mistake

_CHAINS = "draft models and heads draft chains, which were faster on every benchmark; remove it"
_OWN_PIPELINE = {
    "branches": _CHAINS,
    "draft_temperature": "drafts are sampled at each request's own temperature; remove it",
    "min_confidence": "policy optimal plans draft lengths; remove it",
}
_NO_TABLES = "ngram drafts as suffix does, by the longest match of any length; remove it, or name method suffix"
_CERTAIN = "drafts are the most frequent continuation; remove it"
# By method, or by section, the keys that are gone since 0.3, and what stands for each.
_FORMER: Mapping[object, Mapping[str, str]] = {
    "suffix": {"draft_sampling": _CERTAIN},
    "ngram": {"mode": _NO_TABLES, "max_order": _NO_TABLES, "window": _NO_TABLES, "draft_sampling": _CERTAIN},
    "draft_model": _OWN_PIPELINE,
    "eagle3": _OWN_PIPELINE,
    "draft_length": {"explore": "policy optimal needs no trials; remove it"},
}


def without_former(data: Mapping[Any, Any]) -> tuple[dict[Any, Any], list[Mistake]]:
    """Removes former keys from a configuration.

    Args:
        data: nested dicts, as from YAML.

    Returns:
        A copy without them, and a note for each.
    """
    notes: list[Mistake] = []

    def clean(section: Any, path: str, kind: object = None) -> Any:
        if not isinstance(section, Mapping):
            return section
        method = section.get("method")
        former = _FORMER.get(kind or (method if isinstance(method, str) else None), {})
        notes.extend(Mistake(f"{path}.{key}", f"no effect: {former[key]}") for key in section if key in former)
        cleaned = {key: value for key, value in section.items() if key not in former}
        members = cleaned.get("proposers")
        if method == CASCADE and isinstance(members, list):
            cleaned["proposers"] = [clean(member, f"{path}.proposers[{i}]") for i, member in enumerate(members)]
        return cleaned

    cleaned = dict(data)
    if "proposer" in data:
        cleaned["proposer"] = clean(data["proposer"], "proposer")
    if "draft_length" in data:
        cleaned["draft_length"] = clean(data["draft_length"], "draft_length", "draft_length")
    return cleaned, notes
