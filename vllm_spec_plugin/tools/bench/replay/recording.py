"""A recording: outcomes and costs of one target with one plugin configuration, as a file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_spec_plugin.config import PluginConfig, parse_config
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.replay.costs import Costs
from vllm_spec_plugin.tools.bench.replay.traces import Trace

SCHEMA = 1


@dataclass(frozen=True)
class Recording:
    """What a policy is replayed against.

    Attributes:
        config: the plugin's, with the longest draft recorded.
        traces: responses, of all kinds.
        costs: of the target and the proposers.
        provenance: where it comes from.
    """

    config: PluginConfig
    traces: tuple[Trace, ...]
    costs: Costs
    provenance: Mapping[str, Any]

    @property
    def methods(self) -> tuple[str, ...]:
        """The proposers by method, in the configuration's order."""
        return tuple(proposer.method for proposer in self.config.proposers)

    def config_of(self, proposers: Sequence[int], policy: str, tokens: int) -> PluginConfig:
        """The configuration of some of the proposers, with another draft length."""
        sections = [self.config.proposers[index].model_dump(mode="json") for index in proposers]
        section = sections[0] if len(sections) == 1 else {"method": "cascade", "proposers": sections}
        return parse_config(
            {"proposer": section, "draft_length": {"policy": policy, "tokens": tokens}}, "the recording"
        )

    def write(self, path: Path) -> None:
        """Writes a file that `read` reads; a line per response."""
        head = {
            "schema": SCHEMA,
            "provenance": dict(self.provenance),
            "config": self.config.model_dump(mode="json"),
            "costs": self.costs.to_json(),
        }
        lines = ",\n".join(json.dumps(trace.to_json()) for trace in self.traces)
        path.write_text(f'{json.dumps(head)[:-1]},\n"traces": [\n{lines}\n]}}\n', encoding="utf-8")


def read(path: Path) -> Recording:
    """Reads a recording.

    Raises:
        UserError: the file is not there, or is no recording of this schema.
    """
    allowed = f"allowed: a file of `vllm-spec bench record`, schema {SCHEMA}"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; {allowed}") from None
    except ValueError as error:
        raise UserError(f"{path}: no JSON in UTF-8: {error}; {allowed}") from None
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise UserError(f"{path}: no recording, or one of another schema; {allowed}")
    return Recording(
        parse_config(values["config"], str(path)),
        tuple(map(Trace.from_json, values["traces"])),
        Costs.from_json(values["costs"]),
        values["provenance"],
    )


def bundled() -> list[Path]:
    """The recordings that come with the plugin."""
    return sorted((Path(__file__).parent / "data").glob("*.json"))
