"""`make test`: run pytest on several files at once, and what failed once more, alone.

Most tests start real servers, browsers and engines, more of them at once than a small machine has
processors. A test that fails beside others and passes alone does not stop a submission; it is
named in the last lines, with its first failure above. A test that fails alone fails the run, and so
do more than a few failures.

usage: python tools/run_tests.py ARGUMENTS OF PYTEST
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

MOST_AGAIN = 5  # of more failures the machine is not the cause
FAILED = 1  # pytest's exit code if tests failed; other codes tell of a run that did not come to its end
ALONE = ("-n", "0")


def failures(report: Path) -> list[str]:
    """Return the failed tests of a JUnit report, as FOLDER.MODULE.CLASS::NAME, in their order.

    A test that fails, and whose fixture fails after it, is one.
    """
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in ElementTree.parse(report).iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return list(dict.fromkeys(failed))


def run(arguments: Sequence[str], report: Path) -> int:
    """Run pytest, which writes its report here alone; return its exit code."""
    command = [sys.executable, "-m", "pytest", *arguments, f"--junitxml={report}"]
    return subprocess.run(command, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Run the tests of these arguments; return the exit code of `make test`."""
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first.xml"), Path(folder, "second.xml")
        code = run(arguments, first)
        if code != FAILED:
            return code
        failed = failures(first)
        if len(failed) > MOST_AGAIN:
            print(f"{len(failed)} tests failed. At most {MOST_AGAIN} are run again alone, so none was.", flush=True)
            return code
        print(f"Running the {len(failed)} failed again, one at a time:", *failed, sep="\n  ", flush=True)
        again = run([*arguments, *ALONE, "--last-failed", "--last-failed-no-failures=none"], second)
        if again != 0:
            return again
        print(
            "These tests failed beside others and passed alone. That is a fault of the test or of Aliquot:"
            " see their first failure above, and mend it.",
            *failed,
            sep="\n  ",
            flush=True,
        )
        return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
