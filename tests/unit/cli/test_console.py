"""Text of users is printed as it is."""

import pytest
from rich.markup import escape

from vllm_spec_plugin.cli.console import new_console


def test_names_of_emoji_and_escaped_markup_stay(capsys: pytest.CaptureFixture[str]) -> None:
    new_console().print(escape("fixed:a: :smile: [red]x[/red]"))
    assert capsys.readouterr().out == "fixed:a: :smile: [red]x[/red]\n"
