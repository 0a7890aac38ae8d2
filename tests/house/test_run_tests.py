"""`make test` runs a failed test once more, alone, and names it; what fails alone fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_TESTS = str(ROOT / "tools" / "run_tests.py")
PASSES_THE_SECOND_TIME = """
from pathlib import Path

def test_that_passes_the_second_time():
    before = Path(__file__).with_name("ran")
    ran = before.exists()
    before.touch()
    assert ran, "the machine was busy"

def test_that_passes():
    with Path(__file__).with_name("passes").open("a") as passes:
        passes.write("x")
"""
FAILS_TWICE = "\ndef test_that_fails_twice():\n    raise AssertionError('wrong')\n"


def run_tests(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_of_this.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p xdist.plugin\n")
    command = [sys.executable, RUN_TESTS, "-n", "1", "--dist", "loadgroup", str(folder)]
    # Without the options of the run that this test is a part of, and without plugins that each process would import.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False)


def test_a_test_that_passes_alone_is_named_and_does_not_fail_the_run(tmp_path: Path) -> None:
    done = run_tests(tmp_path, PASSES_THE_SECOND_TIME)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the machine was busy" in done.stdout, "the first failure is shown"
    last = done.stdout.partition("failed beside others and passed alone")[2]
    assert "test_of_this::test_that_passes_the_second_time" in last
    assert (tmp_path / "passes").read_text() == "x", "what passed is not run again"


def test_a_test_that_fails_alone_fails_the_run(tmp_path: Path) -> None:
    done = run_tests(tmp_path, PASSES_THE_SECOND_TIME + FAILS_TWICE)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "passed alone" not in done.stdout


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    source = (
        "import pytest\n@pytest.mark.parametrize('number', range(6))\ndef test_that_fails(number):\n    assert False\n"
    )
    done = run_tests(tmp_path, source)
    assert done.returncode == 1
    assert "6 tests failed. At most 5 are run again" in done.stdout


def test_a_module_that_cannot_be_imported_fails_the_run(tmp_path: Path) -> None:
    done = run_tests(tmp_path, "import a_module_that_is_not_there\n")
    assert done.returncode not in (0, 5), done.stdout


def test_a_run_without_tests_ends_as_pytest_told_it(tmp_path: Path) -> None:
    done = run_tests(tmp_path, "")
    assert done.returncode == 5, done.stdout
    assert "again" not in done.stdout
