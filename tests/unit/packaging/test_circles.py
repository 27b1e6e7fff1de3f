"""No files import each other in a circle, also within functions."""

import pytest


def test_imports_have_an_order() -> None:
    """Removes files that import nothing else, again and again; what is left imports each other."""
    grimp = pytest.importorskip("grimp", reason="a development tool")
    graph = grimp.build_graph("vllm_spec_plugin", "vllm_spec_tools", exclude_type_checking_imports=True)
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while free := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported for module, imported in left.items() if module not in free}
    assert not left
