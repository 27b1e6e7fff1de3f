"""The page shows results by version of vLLM where these differ."""

from tests.matrix.cells import EXACT
from tests.matrix.page import render

REFUSED = {"verdict": "refused", "reasons": ["--model: it has windows"]}


def exact(accepted):
    return {"verdict": EXACT, "reasons": [], "accepted": accepted, "rejected": 9}


def run(ngram, tree):
    row = {"date": "2026-01-01", "seconds": 1.0, "cells": {"ngram": ngram, "tree": tree}}
    return {"versions": {"vllm": "any"}, "machine": {"cpu": "any", "cores": 1}, "rows": {"opt": row}}


def test_cells_name_versions_where_these_differ():
    page = render({"0.32.0": run(exact(1), exact(2)), "0.33.0": run(exact(1), REFUSED)})
    assert "\n| OPT | exact (1, 9) |  | 0.32: exact (2, 9)<br>0.33: refused (1) |  |  |\n" in page
    assert "\n1. `--model`: it has windows\n" in page
    assert "Of the 2 cells of this table, 1 are exact and 0 refused, on\nvLLM 0.32 and 0.33; 1 have another" in page
    assert "tested on  and the bundled target (Llama)." in page


def test_a_cell_that_was_run_on_one_version_names_it():
    both = {"0.32.0": run(exact(1), exact(2)), "0.33.0": run(exact(1), exact(2))}
    del both["0.32.0"]["rows"]["opt"]["cells"]["ngram"]
    page = render(both)
    assert "\n| OPT | 0.33: exact (1, 9) |  | exact (2, 9) |  |  |\n" in page
    assert (
        "- vLLM 0.33.0: 2026-01-01, 1 s of one core in all, on 1 core of any. Versions: . It has no CPU build" in page
    )


def test_a_cascade_has_no_figures_as_they_depend_on_the_machine():
    runs = {"0.32.0": run(exact(1), exact(2)), "0.33.0": run(exact(1), exact(2))}
    for accepted, each in enumerate(runs.values()):
        each["rows"]["opt"]["cells"]["cascade"] = exact(accepted)
    assert "\n| OPT | exact (1, 9) |  | exact (2, 9) |  | exact |\n" in render(runs)
