"""What comes of checks."""

import json

from rich.console import Console

from loadtests.acceptance.verdicts import Verdict, all_passed, summary_json, summary_table

GOOD = Verdict("ramp", "no request fails", True, "812 requests")
BAD = Verdict("chaos", "who stays is answered", False, "1 failed: [timeout]")


def test_one_failure_is_enough_and_nothing_checked_is_one() -> None:
    assert all_passed([GOOD, GOOD])
    assert not all_passed([GOOD, BAD])
    assert not all_passed([])


def test_json_has_every_check() -> None:
    found = json.loads(summary_json([GOOD, BAD], 61.26, {"users": 64}))
    assert (found["passed"], found["seconds"], found["options"]) == (False, 61.3, {"users": 64})
    assert found["checks"][0] == {
        "part": "ramp",
        "check": "no request fails",
        "passed": True,
        "figures": "812 requests",
    }
    assert [check["passed"] for check in found["checks"]] == [True, False]


def test_people_see_what_failed_and_square_brackets() -> None:
    console = Console(width=200)
    with console.capture() as shown:
        console.print(summary_table([GOOD, BAD], 61.26))
        console.print(BAD.line())
    *rows, line = shown.get().splitlines()
    assert any("ramp" in row and "passed" in row and "812 requests" in row for row in rows)
    assert any("chaos" in row and "FAILED" in row and "[timeout]" in row for row in rows)
    assert line == "FAILED  chaos: who stays is answered (1 failed: [timeout])"
