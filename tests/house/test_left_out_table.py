"""One table lists the parts left out of a run, with their reasons."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from left_out_table import lines

ROOT = Path(__file__).resolve().parents[2]


def skipped(place: str, reason: str) -> pytest.TestReport:
    longrepr = (place, 1, f"Skipped: {reason}")
    return pytest.TestReport(f"tests/{place}::test_one", (place, 1, ""), {}, "skipped", longrepr, "setup")


def test_tests_with_one_reason_are_one_row_and_the_most_come_first(tmp_path: Path) -> None:
    found = lines(
        [skipped("a.py", "no Node"), *(skipped(f"{name}.py", "no GPU") for name in "abcde"), skipped("a.py", "no GPU")],
        tmp_path / "none",
    )
    rows = [" ".join(line.split()) for line in found]
    assert rows[2] == "6 no GPU a.py, b.py, c.py and 2 more"
    assert rows[-1] == "1 no Node a.py"


def test_a_part_of_the_set_up_that_failed_is_a_row_with_its_reason(tmp_path: Path) -> None:
    written = tmp_path / "left-out.tsv"
    written.write_text("Node\tthe bundle is not checked\tnode is not on the PATH: install Node 20\n")
    text = " ".join("\n".join(lines([], written)).split())
    assert "set-up Node is missing: node is not on the PATH: install Node 20 the bundle is not checked" in text


def test_nothing_is_said_where_nothing_was_left_out(tmp_path: Path) -> None:
    assert lines([], tmp_path / "none") == []


def test_what_set_up_and_checks_write_is_what_the_table_reads(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("left_out", ROOT / "tools" / "left_out.py")
    assert spec is not None
    assert spec.loader is not None
    left_out = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(left_out)
    left_out.LIST = tmp_path / "build" / "left-out.tsv"
    left_out.add("of an earlier run", "an effect", "a reason")
    left_out.begin()
    left_out.add("npm", "an effect", "a reason\nin\tseveral lines")
    assert left_out.entries() == [("npm", "an effect", "a reason in several lines")]
    assert "npm is missing: a reason in several lines" in " ".join("\n".join(lines([], left_out.LIST)).split())


def test_a_run_of_pytest_ends_with_the_table(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text("import pytest\n\ndef test_one():\n    pytest.skip('the moon is full')\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command += [f"--confcutdir={ROOT}", "-p", "conftest", str(test)]
    env = {"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    *table, last = done.stdout.splitlines()
    assert "left out, and why:" in table
    assert any(line.split()[:5] == ["1", "the", "moon", "is", "full"] for line in table)
    assert "1 skipped" in last
