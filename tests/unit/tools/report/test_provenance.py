"""Tests the provenance of figures."""

import subprocess
from pathlib import Path

from vllm_spec_tools.report.provenance import commit_of


def test_the_commit_is_that_of_the_checkout_and_says_whether_files_differ(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert commit_of(tmp_path) is None
    git("init")
    assert commit_of(tmp_path) is None
    path = tmp_path / "file"
    path.write_text("one")
    git("add", "file")
    git("commit", "-m", "first")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "untracked").write_text("")
    assert commit_of(tmp_path) == commit
    path.write_text("two")
    assert commit_of(tmp_path) == f"{commit}+"
