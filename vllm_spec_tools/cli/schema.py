"""`vllm-spec schema`: prints the JSON schema of a plugin.yaml."""

import typer


def schema() -> None:
    """Print the JSON schema of a plugin.yaml, with descriptions.

    Editors complete and check files that begin with `# yaml-language-server: $schema=plugin.schema.json`.
    """
    import json

    from vllm_spec_plugin.config import PluginConfig

    typer.echo(
        json.dumps(
            {"$schema": "https://json-schema.org/draft/2020-12/schema"} | PluginConfig.model_json_schema(), indent=1
        )
    )
